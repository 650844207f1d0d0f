"""A logger that logs nowhere."""


def configure(*_, **__):
    pass


def log_value(*_, **__):
    pass


class Logger:
    def __init__(self, logdir="", **_):
        pass

    def log_value(self, *_):
        pass
