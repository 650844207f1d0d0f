from .gpt import GPT as GPT
from .gpt import Layer as Layer
