"""Speed and memory, as ratios measured side by side in one run: ``python -m benchmarks``."""

import os

os.environ["ATTNVIZ_CACHE"] = "off"  # whatever is measured here is measured now
