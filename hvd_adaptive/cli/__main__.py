"""``python -m hvd_adaptive.cli``, where the command is not on ``PATH``."""

from hvd_adaptive.cli.app import app

if __name__ == "__main__":
    app(prog_name="hvd-adaptive")
