"""What is claimed, proved: ``python -m proofs`` makes docs/proofs.md.

``python -m proofs.coverage`` makes the table of how often intervals hold, by the number of texts.
"""

import os

os.environ["ATTNVIZ_CACHE"] = "off"  # whatever is measured here is measured now
