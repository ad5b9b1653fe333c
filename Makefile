.PHONY: demo test test-full clean

demo:
	bash scripts/demo.sh

test:
	bash scripts/test.sh

test-full:
	bash scripts/test.sh --full

clean:
	rm -rf .venv build dist runs *.egg-info
