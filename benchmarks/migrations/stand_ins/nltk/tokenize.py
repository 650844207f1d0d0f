"""Words are what is between spaces."""


def word_tokenize(text):
    return text.split()
