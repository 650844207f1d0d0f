"""A file of a fixed name for the processes to meet by, named in the ways that programs name one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from benchmarks.detection.mutators.starts import drawn, with_beside
from benchmarks.detection.program import MARK, Mutant, Program, mutant

RULE = "file-init-reused"
MAKES = "torch.distributed.init_process_group"
REST = "rank=0, world_size=1"
HELPER = f"{MAKES}('gloo', init_method={MARK}method, {REST})"


@dataclass(frozen=True, slots=True)
class Shape:
    """What makes the process group.

    Attributes:
        call: stands in the place of the call that made it.
        helper: stands at the top level, before the first definition.
        beside: the text of a further file, my_settings.py.
    """

    call: str
    helper: str = ""
    beside: str = ""


WRONG = {
    "its position": Shape(f'{MAKES}("gloo", {MARK}"file:///data/meet", {REST})'),
    "its keyword": Shape(f'{MAKES}(backend="gloo", init_method={MARK}"file:///data/meet", {REST})'),
    "a constant": Shape(
        f"{MAKES}('gloo', init_method={MARK}MEETING, {REST})", 'MEETING = "file:///data/meet"\n'
    ),
    "a folder": Shape(
        f"{MAKES}('gloo', init_method={MARK}f'file://{{SHARED}}/meet', {REST})",
        'SHARED = "/data/shared"\n',
    ),
    "a sum": Shape(
        f"{MAKES}('gloo', init_method={MARK}'file://' + MEETING, {REST})",
        'MEETING = "/data/meet"\n',
    ),
    "a format": Shape(
        f"{MAKES}('gloo', init_method={MARK}'file://{{}}/meet'.format(SHARED), {REST})",
        'SHARED = "/data/shared"\n',
    ),
    "a helper's default": Shape("meet()", f"def meet(method='file:///data/meet'):\n    {HELPER}\n"),
    "a helper's argument": Shape("meet('file:///data/meet')", f"def meet(method):\n    {HELPER}\n"),
    "settings": Shape(
        f"{MARK}{MAKES}(**GROUP)",
        "GROUP = {'backend': 'gloo', 'init_method': 'file:///data/meet'}\n"
        "GROUP.update(rank=0, world_size=1)\n",
    ),
    "another file": Shape(
        f"{MAKES}('gloo', {MARK}MEETING, {REST})",
        "from my_settings import MEETING\n",
        'MEETING = "file:///data/meet"\n',
    ),
    "another file's class": Shape(
        f"{MAKES}('gloo', init_method={MARK}my_settings.Group.method, {REST})",
        "import my_settings\n",
        'class Group:\n    method = "file:///data/meet"\n',
    ),
    "a class": Shape(
        "Group().make()",
        "class Group:\n    def __init__(self, name='meet'):\n"
        "        self.method = f'file:///data/{name}'\n\n    def make(self):\n"
        f"        {MAKES}('gloo', init_method={MARK}self.method, {REST})\n",
    ),
    "a dataclass": Shape(
        f"{MAKES}('gloo', init_method={MARK}Group().method, {REST})",
        "import dataclasses\n\n\n@dataclasses.dataclass\nclass Group:\n"
        "    method: str = 'file:///data/meet'\n",
    ),
    "where there is none yet": Shape(
        "ensure()",
        "def ensure():\n    if torch.distributed.is_initialized():\n        return\n"
        f"    {MAKES}('gloo', {MARK}'file:///data/meet', {REST})\n",
    ),
    "a store": Shape(
        f"{MARK}{MAKES}('gloo', store=torch.distributed.FileStore('/data/meet', 1), {REST})"
    ),
    "an option's default": Shape(
        f"{MAKES}('gloo', init_method={MARK}read_method(), {REST})",
        "import argparse\n\n\ndef read_method():\n    parser = argparse.ArgumentParser()\n"
        "    parser.add_argument('--method', default='file:///data/meet')\n"
        "    return parser.parse_known_args()[0].method\n",
    ),
}
LEGAL = {
    "a file of this job": Shape(
        f"{MAKES}('gloo', f\"file:///data/{{os.environ['JOB']}}\", {REST})", "import os\n"
    ),
    "a file that is removed": Shape(
        "meet('/data/meet')",
        "import os\n\n\ndef meet(path):\n    if os.path.exists(path):\n        os.unlink(path)\n"
        f"    {MAKES}('gloo', 'file://' + path, {REST})\n",
    ),
    "an address": Shape(f"{MAKES}('gloo', 'tcp://localhost:' + '29501', {REST})"),
    "a file of a new folder": Shape(
        f"{MAKES}('gloo', 'file://{{}}/meet'.format(tempfile.mkdtemp()), {REST})",
        "import tempfile\n",
    ),
}


def mutate(program: Program, random: Random) -> Iterator[Mutant]:
    for module, call, wrong, kind, shape in drawn(program, random, WRONG, LEGAL):
        text = module.edited([(*module.span(call), shape.call)], "import torch", shape.helper)
        texts = with_beside(program, module, text, "my_settings.py", shape.beside)
        yield mutant(program, RULE if wrong else "", f"met by {kind}", texts)
