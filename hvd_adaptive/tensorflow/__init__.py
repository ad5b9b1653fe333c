"""The binding for ``horovod.tensorflow``."""
