"""Reads Apptainer definitions as Apptainer's own parser does: stages, headers, sections and build arguments. Raises DefinitionError for
what Apptainer rejects or only warns about."""

import dataclasses
import re

HEADER = {"bootstrap", "from", "stage"}  # of those for the agent `docker`
SECTIONS = {"arguments", "environment", "files", "help", "labels", "post", "pre", "runscript", "setup", "startscript", "test"}


class DefinitionError(Exception):
    pass


@dataclasses.dataclass
class Stage:
    header: dict    # by key in lower case
    sections: dict  # text by name; `files` is not among them
    files: list     # (stage or None for the host, source, destination)


def arguments_of(text):
    """NAME=VALUE, one on a line, as in an argument file or in %arguments, with comments. Apptainer removes no quotes."""
    found = {}
    for line in text.splitlines():
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        if not re.fullmatch(r"\w+=[^\s'\"]+", line):
            raise DefinitionError(f"no NAME=VALUE: {line!r}")
        found.update([line.split("=", 1)])
    return found


def parse(text):
    """One stage. A line whose first word starts with % begins a section, whatever section it is in."""
    stage = Stage({}, {}, [])
    section = origin = None
    for line in text.splitlines():
        words = line.split()
        if words and words[0].startswith("%"):
            section = words[0][1:].lower()
            if section not in SECTIONS:
                raise DefinitionError(f"no section of Apptainer: {line!r}")
            if words[1:] and (section != "files" or len(words) != 3 or words[1] != "from"):
                raise DefinitionError(f"unexpected after the section's name: {line!r}")
            origin = words[2] if words[1:] else None
        elif section is None:
            if words and not line.lstrip().startswith("#"):
                key, separator, value = line.partition(":")
                if not separator or key.strip().lower() not in HEADER:
                    raise DefinitionError(f"no header of Apptainer: {line!r}")
                stage.header[key.strip().lower()] = value.strip()
        elif section == "files":
            if words and not words[0].startswith("#"):
                if len(words) > 2 or re.search(r"['\"*?\[]", line):
                    raise DefinitionError(f"a source and a destination, with quotes or patterns: {line!r}")
                stage.files.append((origin, words[0], words[-1]))
        else:
            stage.sections[section] = stage.sections.get(section, "") + line + "\n"
    return stage


def read(text, arguments):
    """All stages. Defaults in %arguments apply to their own stage only."""
    starts = [match.start() for match in re.finditer(r"^bootstrap:", text, re.M | re.I)]
    used, stages = set(), []
    for begin, end in zip(starts, [*starts[1:], len(text)]):
        values = {**arguments_of(parse(text[begin:end]).sections.get("arguments", "")), **arguments}

        def value(match):
            if match[1] not in values:
                raise DefinitionError(f"{match[0]} is neither in this stage's %arguments nor given")
            used.add(match[1])
            return values[match[1]]

        # Some versions of Apptainer also replace in comments.
        stage = parse(re.sub(r"{{\s*(\w+)\s*}}", value, text[begin:end]))
        for origin, *_ in stage.files:
            if origin and origin not in [earlier.header.get("stage") for earlier in stages]:
                raise DefinitionError(f"%files from {origin}: no stage before this one has that name")
        stages.append(stage)
    if arguments.keys() - used:
        raise DefinitionError(f"not used: {arguments.keys() - used}")
    return stages
