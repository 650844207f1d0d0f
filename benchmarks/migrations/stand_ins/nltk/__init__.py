"""A small NLTK, whose words are what is between spaces."""


def download(name):
    pass
