# Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
"""Lets the block tests import their harness."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
