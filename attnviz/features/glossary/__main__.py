"""Print ``docs/glossary.md``: ``python -m attnviz.features.glossary > docs/glossary.md``."""

from attnviz.features.glossary.markdown import page

print(page(), end="")
