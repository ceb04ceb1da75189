# SPDX-License-Identifier: BSD-3-Clause
"""The version of the package, which is that of the library that it was written for."""
VERSION = "0.1.0"
