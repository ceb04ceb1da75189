# SPDX-License-Identifier: BSD-3-Clause
"""All is said in pyproject.toml, but one thing: a package that is installed from a source tree
remembers the tree, so that it finds the library which was built there."""
import os

from setuptools import setup
from setuptools.command.build_py import build_py

HERE = os.path.dirname(os.path.abspath(__file__))


class BuildWithTree(build_py):
    def run(self):
        super().run()
        tree = os.path.dirname(HERE)
        if self.editable_mode or not os.path.exists(os.path.join(tree, "include", "ringfold.h")):
            return
        path = os.path.join(self.build_lib, "ringfold", "_source_tree.txt")
        with open(path, "w", encoding="utf-8") as file:
            file.write(tree + "\n")

    def get_outputs(self, include_bytecode=1):
        outputs = super().get_outputs(include_bytecode)
        path = os.path.join(self.build_lib, "ringfold", "_source_tree.txt")
        return outputs + [path] if os.path.exists(path) else outputs


setup(cmdclass={"build_py": BuildWithTree})
