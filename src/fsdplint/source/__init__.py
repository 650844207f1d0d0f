"""Source files as text: encodings, line endings, positions and notebooks, lossless both ways."""

from fsdplint.source.decoding import Skipped, SourceError
from fsdplint.source.file import SourceFile, from_bytes, from_text, load

__all__ = ["Skipped", "SourceError", "SourceFile", "from_bytes", "from_text", "load"]
