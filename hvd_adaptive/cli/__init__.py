"""The command ``hvd-adaptive``: arguments and printing only."""
