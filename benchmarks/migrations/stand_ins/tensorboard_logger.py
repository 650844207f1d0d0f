"""A logger that logs nowhere."""


class Logger:
    def __init__(self, logdir="", **_):
        pass

    def log_value(self, *_):
        pass
