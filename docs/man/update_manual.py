#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Writes the tables of ringfold.7: the environment from `ringfold info --config`, the errors from
ringfold.h. With --check it only says whether they are current.

    docs/man/update_manual.py [--check] RINGFOLD_COMMAND
"""

import json
import os
import re
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
MANUAL = os.path.join(HERE, "ringfold.7")
HEADER = os.path.join(HERE, "..", "..", "include", "ringfold.h")


def roff(text):
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return "\\&" + text if text.startswith((".", "'")) else text


def item(name, text):
    return f".TP\n.B {roff(name)}\n{roff(text)}\n"


def environment(command):
    clean = {k: v for k, v in os.environ.items() if not k.startswith("RINGFOLD_")}
    shown = subprocess.run([command, "info", "--config", "--json"], env=clean, check=True,
                           capture_output=True, text=True)
    for row in json.loads(shown.stdout):
        text = row["text"][0].upper() + row["text"][1:] + "."
        if row["choices"]:
            text += " One of " + row["choices"].replace("|", ", ") + "."
        if row["default"]:
            text += f" Default {row['default']}."
        if row["agreed"]:
            text += " Agreed."
        yield item(row["variable"], text)


def errors():
    with open(HEADER, encoding="utf-8") as header:
        text = header.read()
    listed = text[text.index("#define RF_ERROR_LIST"):text.index("/** Element types")]
    for name, value, meaning in re.findall(r'X\((\w+), (-\d+), "([^"]*)"\)', listed):
        yield item(f"{name} ({value})", meaning)


def replace(text, what, rows):
    begin = text.index("\n", text.index(f'.\\" begin {what}')) + 1
    end = text.index(f'.\\" end {what}')
    return text[:begin] + "".join(rows) + text[end:]


def main():
    arguments = sys.argv[1:]
    check = "--check" in arguments
    arguments = [argument for argument in arguments if argument != "--check"]
    if len(arguments) != 1:
        sys.exit(__doc__)
    with open(MANUAL, encoding="utf-8") as manual:
        before = manual.read()
    after = replace(before, "environment", environment(arguments[0]))
    after = replace(after, "errors", errors())
    if check:
        sys.exit(0 if after == before else "ringfold.7 is not current: run " + __file__)
    with open(MANUAL, "w", encoding="utf-8") as manual:
        manual.write(after)


main()
