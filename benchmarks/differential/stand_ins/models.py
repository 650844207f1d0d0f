"""Stands in for the models that fixtures import."""

from gpt import GPT, Block

__all__ = ["Block", "CausalLM"]


class CausalLM(GPT):
    pass
