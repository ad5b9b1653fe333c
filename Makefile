.PHONY: demo test clean

demo:
	bash scripts/demo.sh

test:
	bash scripts/test.sh

clean:
	rm -rf .venv build dist runs *.egg-info
