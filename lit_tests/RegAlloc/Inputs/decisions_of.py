# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Prints the decisions of a file of remarks as -mlgo-decisions takes them."""

import re
import sys
from pathlib import Path

text = Path(sys.argv[1]).read_text()
for remark in text.split("\n--- ")[0:]:
    decision = re.search(r"^ +- Decision: +'(\d+)'$", remark, re.MULTILINE)
    key = re.search(r"^ +- Key: +'(.+)'$", remark, re.MULTILINE)
    if decision and key:
        print(key[1], decision[1])
