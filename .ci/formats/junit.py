"""JUnit's XML by the schema of Jenkins' xUnit plugin, and as junit2html shows it."""

from __future__ import annotations

import re
from pathlib import Path

import xmlschema
from finds import FAILED, Break, Found, Refused
from junit2htmlreport.parser import Case, Junit

# The headline of a finding: a path, its place, and a code.
HEADLINE = re.compile(r"^.*?:(?:cell \d+:)?\d+:\d+: (?P<code>FSD\d+) ")
CANARIES: dict[str, Break] = {
    "a test without a name": lambda text: text.replace("<testcase name=", "<testcase status=", 1),
    "an attribute that there is not": lambda text: text.replace("<failure ", '<failure at="1" ', 1),
    "a result that there is not": lambda text: re.sub("<(/?)failure", r"<\1finding", text),
    "an element that does not end": lambda text: text.replace("</testsuite>", "", 1),
    "a test outside of suites": lambda text: re.sub("</?testsuite( .*?)?>", "", text),
}


class Reader:
    """The schema, which takes long to read."""

    def __init__(self, schema: Path) -> None:
        self.schema = xmlschema.XMLSchema10(schema)

    def read(self, text: str, directory: Path) -> list[Found]:
        """The tests that failed."""
        try:
            self.schema.validate(text)
        except (xmlschema.XMLSchemaValidationError, xmlschema.XMLResourceError) as error:
            raise Refused(str(error)) from error
        except SyntaxError as error:
            raise Refused(f"no XML: {error}") from error
        report = Junit(xmlstring=text.encode())
        cases = [case for suite in report.suites for case in suite.all()]
        if "<html" not in report.html():
            raise Refused("no page")
        found = [_found(case) for case in cases if case.failed()]
        absent = [each.path for each in found if not (directory / each.path).is_file()]
        if absent:
            raise Refused(f"no file: {absent}")
        return found


def _found(case: Case) -> Found:
    path = case.testclass.name
    headline = HEADLINE.match(case.failure)
    return Found(headline["code"] if headline else FAILED, path, None)
