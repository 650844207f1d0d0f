"""The local rank as an option of the program, in the many ways that programs take options."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from benchmarks.detection.module import indented
from benchmarks.detection.mutators.starts import behind, drawn, with_beside
from benchmarks.detection.program import MARK, Mutant, Program, mutant

RULE = "local-rank-argument"
NUMBER = f'{MARK}{{parser}}.add_argument("--local_rank", type=int, default=0)'


@dataclass(frozen=True, slots=True)
class Shape:
    """What a program gets to choose its device.

    Attributes:
        lines: stand behind the process group.
        helper: stands at the top level, before the first definition.
        beside: the text of a further file, my_options.py.
    """

    lines: str
    helper: str = ""
    beside: str = ""


def _argparse(parser: str = "parser", by: str = "argparse.ArgumentParser()") -> str:
    return f"{parser} = {by}\n" + NUMBER.format(parser=parser) + "\n"


SET = "torch.cuda.set_device({})\n"
READ = "def read_options():\n" + indented(_argparse(), "    ")
WRONG = {
    "inline": Shape(_argparse() + SET.format("parser.parse_known_args()[0].local_rank")),
    "a helper": Shape(
        SET.format("read_options().local_rank"), READ + "    return parser.parse_args([])\n"
    ),
    "another file": Shape(
        "import my_options\n" + SET.format("my_options.read_options().local_rank"),
        beside="import argparse\n\n\n" + READ + "    return parser.parse_known_args()[0]\n",
    ),
    "a class": Shape(
        "options = Options()\noptions.choose()\n",
        "class Options:\n    def __init__(self):\n"
        + indented(_argparse(), "        ")
        + "        self.args, self.rest = parser.parse_known_args()\n\n"
        + "    def choose(self):\n        torch.cuda.set_device(self.args.local_rank)\n",
    ),
    "another destination": Shape(
        f"parser = argparse.ArgumentParser()\n{MARK}parser.add_argument(\n"
        '    "--local-rank", "--local_rank", dest="gpu", type=int, default=0\n)\n'
        "given, _ = parser.parse_known_args()\n" + SET.format("given.gpu")
    ),
    "vars": Shape(
        _argparse() + 'given = vars(parser.parse_known_args()[0])\ndevice_ = given["local_rank"]\n'
        "where = torch.device('cuda', device_)\ntorch.zeros(1, device=where).to(where)\n"
    ),
    "settings of the option": Shape(
        "number = dict(type=int, default=-1)\nparser = argparse.ArgumentParser()\n"
        f'{MARK}parser.add_argument("--local_rank", **number)\n'
        + SET.format('torch.device("cuda", parser.parse_known_args()[0].local_rank)')
    ),
    "a text": Shape(
        _argparse() + "given = parser.parse_known_args()[0]\n"
        'warm = torch.zeros(1).to(f"cuda:{given.local_rank}")\n'
    ),
    "handed on": Shape(
        _argparse() + "options = parser.parse_known_args()[0]\nchoose(options.local_rank)\n",
        "def choose(local_rank):\n    torch.cuda.set_device(local_rank)\n",
    ),
    "all options handed on": Shape(
        _argparse() + "choose(parser.parse_known_args()[0])\n",
        "def choose(config):\n    gpu = config.local_rank\n    torch.cuda.set_device(gpu)\n",
    ),
    "a group of options": Shape(
        "parser = argparse.ArgumentParser()\nlaunch = parser.add_argument_group('launch')\n"
        + NUMBER.format(parser="launch")
        + "\n"
        + SET.format("parser.parse_known_args()[0].local_rank")
    ),
    "a parser of its own": Shape(
        SET.format("Parser().parse_known_args()[0].local_rank"),
        "class Parser(argparse.ArgumentParser):\n    def __init__(self):\n"
        "        super().__init__()\n        " + NUMBER.format(parser="self") + "\n",
    ),
    "a dataclass of transformers' parser": Shape(
        "(options,) = HfArgumentParser(Options).parse_args_into_dataclasses([])\n"
        + SET.format("options.local_rank"),
        "from transformers import HfArgumentParser\nimport dataclasses\n\n\n"
        f"@dataclasses.dataclass\nclass Options:\n    name: str = 'x'\n"
        f"    {MARK}local_rank: int = 0\n",
    ),
    "a dataclass of tyro": Shape(
        "options = tyro.cli(Options, args=[])\n" + SET.format("options.local_rank"),
        "import dataclasses\n\nimport tyro\n\n\n@dataclasses.dataclass\nclass Options:\n"
        f"    {MARK}local_rank: int = -1\n",
    ),
}
ENVIRONMENT = 'int(os.environ.get("LOCAL_RANK", 0))'
LEGAL = {
    "the environment": Shape(
        f'parser = argparse.ArgumentParser()\nparser.add_argument("--local_rank", '
        f"default={ENVIRONMENT})\n" + SET.format("parser.parse_known_args()[0].local_rank")
    ),
    "a dataclass of the environment": Shape(
        "options = tyro.cli(Options, args=[])\n" + SET.format("options.local_rank"),
        "import dataclasses\nimport os\n\nimport tyro\n\n\n@dataclasses.dataclass\nclass Options:\n"
        f"    local_rank: int = dataclasses.field(default_factory=lambda: {ENVIRONMENT})\n",
    ),
    "another device": Shape(
        'parser = argparse.ArgumentParser()\nparser.add_argument("--gpu", type=int, default=0)\n'
        + SET.format("parser.parse_known_args()[0].gpu")
    ),
    "an option of click that the environment sets": Shape(
        "choose(standalone_mode=False)\n",
        "import click\n\n\n@click.command()\n"
        "@click.option('--local_rank', default=0, envvar='LOCAL_RANK')\n"
        "def choose(local_rank):\n    torch.cuda.set_device(local_rank)\n",
    ),
}


def mutate(program: Program, random: Random) -> Iterator[Mutant]:
    for module, call, wrong, kind, shape in drawn(program, random, WRONG, LEGAL, legal_drawn=1):
        edits = [behind(module, call, shape.lines)]
        text = module.edited(edits, "import argparse, os, torch", shape.helper)
        texts = with_beside(program, module, text, "my_options.py", shape.beside)
        if wrong:  # nothing else tells the local rank
            texts = {path: each.replace("LOCAL_RANK", "MINE") for path, each in texts.items()}
        yield mutant(program, RULE if wrong else "", f"option by {kind}", texts)
