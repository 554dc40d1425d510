# make demo   install, and a tour of the heads of a real transformer
# make setup  what a contributor needs, in .venv
# make test   run the tests, in minutes
# make slow   run those that make test leaves out
# make quick  run those that take no time, at every save
# make thorough  run every test, the slow ones too, and measure what they cover
# make times  run the tests and tell which take longest
# make check  ruff, mypy and tsc
# make dist   build the wheel and use it in an empty venv, with the newest dependencies, and without torch
# make lowest  run the tests with the lowest versions that pyproject.toml allows
# make torture  kill exports, 120 times
# make fuzz   30,000 generated command lines, calls, files, plugins, agents and kills, in about 15 minutes
# make mutation  break 20 lines chosen at random: do the tests notice?
# make proofs  what is known otherwise beside what attnviz says, in minutes: docs/proofs.md
# make gallery  pages of docs/gallery.md into gallery/, each built twice and compared
# make site   docs/, README and docstrings as a static site, into site/, built twice and compared
# make bench  speed and memory, as ratios measured in one run

PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt
SENTENCE := The keys to the cabinet are on the table because the keys to the cabinet were lost
OUT := demo-output

.PHONY: demo setup test slow quick thorough times check dist lowest proofs gallery site bench torture fuzz mutation clean

.venv/bin/python:
	$(PYTHON) -m venv .venv

.venv/installed: pyproject.toml constraints.txt | .venv/bin/python
	$(PIP) -e .
	touch $@

.venv/tested: .venv/installed
	$(PIP) -e ".[dev]"
	touch $@

demo: export HF_HUB_OFFLINE = 1
demo: .venv/installed
	@mkdir -p $(OUT)
	@$(BIN)/attnviz demo --out $(OUT)/page.html
	@$(BIN)/attnviz heads "$(SENTENCE)" --out $(OUT)/heads.png --quiet > /dev/null
	@printf '\nPictures: $(OUT)/heads.png, and $(OUT)/page.html to open in a browser\nThe command: $(BIN)/attnviz\n'

# the viewer's page is checked by TypeScript and axe, neither of which is in it
.venv/node/installed: | .venv/bin/python
	npm install --silent --no-audit --no-fund --prefix .venv/node typescript@7.0.2 axe-core@4.14.1 wabt@1.0.39
	touch $@

setup: .venv/tested
	@command -v npm >/dev/null && $(MAKE) --no-print-directory .venv/node/installed || echo "no npm or no network, so make check stops at the page's scripts"

# tests start many processes, which compile nothing where that is kept
export PYTHONDONTWRITEBYTECODE :=

# processes that are forked when all is collected; a file's tests run in one of them
WORKERS = $(shell $(PYTHON) -c "import os; print(min(8, 1 + (os.cpu_count() or 1)))")
PYTEST = HF_HUB_OFFLINE=1 $(BIN)/python -m pytest -p tests.workers --processes $(WORKERS)
QUICK := tests/attention tests/core tests/scoring tests/statistics tests/test_architecture.py tests/test_errors.py tests/test_files.py

.PHONY: axe
axe: .venv/tested
	@command -v npm >/dev/null && $(MAKE) --no-print-directory .venv/node/installed || echo "no npm or no network, so axe is missing and accessibility is not tested"

test: axe
	$(BIN)/python -m compileall -q -j 2 attnviz
	$(PYTEST) -m "not slow"

slow: axe
	$(PYTEST) -m slow

quick: .venv/tested
	ATTNVIZ_EXAMPLES=quick $(PYTEST) -q -m "not slow" $(QUICK)

thorough: axe
	ATTNVIZ_EXAMPLES=thorough HF_HUB_OFFLINE=1 $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder --cov --cov-report=term --cov-fail-under=94

times: axe
	$(PYTEST) -q -m "not slow" --durations=60

check: .venv/tested .venv/node/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	.venv/node/node_modules/.bin/tsc

# users have no constraints.txt, so neither has this venv; torch alone is held to the version that
# is tested, since on Linux the newest wheel may bring gigabytes of CUDA that no test here uses
# the wheel and the sdist, the same bytes whenever they are built from the same files
dist: export HF_HUB_OFFLINE = 1
dist: .venv/tested
	rm -rf dist .venv/dist .venv/light
	$(BIN)/python -m docs.release dist
	ATTNVIZ_WHEEL=$$(echo $(CURDIR)/dist/*.whl) $(BIN)/pytest -q tests/test_wheel.py
	$(PYTHON) -m venv .venv/dist
	grep '^torch==' constraints.txt > .venv/dist/constraints.txt
	.venv/dist/bin/pip install --quiet -c .venv/dist/constraints.txt dist/*.whl
	.venv/dist/bin/pip check
	cd .venv/dist && bin/attnviz heads "$(SENTENCE)" --out heads.png
	cd .venv/dist && bin/attnviz shapes --d-model 512 --heads 8
	cd .venv/dist && bin/attnviz shapes --model llama3-70b
	cd .venv/dist && bin/attnviz view "$(SENTENCE)" --model demo-bert -o page.html
	cd .venv/dist && bin/python -c 'from attnviz.models.pretrained import load; print(load("demo-bert", backend="hooked").info)'
	$(PYTHON) -m venv .venv/light
	.venv/light/bin/pip install --quiet --no-deps dist/*.whl tokenizers
	.venv/light/bin/pip install --quiet -r requirements-light.txt
	du -sm --exclude=pip --exclude=setuptools .venv/light/lib/python*/site-packages
	cd .venv/light && bin/attnviz view "$(SENTENCE)" -o page.html
	cd .venv/light && bin/attnviz ablate "$(SENTENCE)" --select '1.*' -o ablate.json
	cd .venv/light && bin/attnviz heads "$(SENTENCE)" -o heads.png && bin/attnviz heatmap "$(SENTENCE)" -o heatmap.png
	cd .venv/light && ! bin/attnviz heatmap "$(SENTENCE)" -o heatmap.svg

# not part of CI: bounds change rarely. torch is the tested one here too, an older one is not tried
lowest: export HF_HUB_OFFLINE = 1
lowest: | .venv/bin/python
	rm -rf .venv/lowest
	$(PYTHON) -m venv .venv/lowest
	sed -n '/^dependencies/,/^]/s/^ *"\(.*\)>=\(.*\)",/\1==\2/p' pyproject.toml | grep -v '^torch=' > .venv/lowest/constraints.txt
	grep '^torch==' constraints.txt >> .venv/lowest/constraints.txt
	.venv/lowest/bin/pip install --quiet -c .venv/lowest/constraints.txt -e ".[test]"
	.venv/lowest/bin/pytest -n 2

proofs: .venv/tested
	HF_HUB_OFFLINE=1 $(BIN)/python -m proofs --write docs/proofs.md

gallery: .venv/tested
	HF_HUB_OFFLINE=1 $(BIN)/python docs/gallery.py gallery

site: .venv/tested
	HF_HUB_OFFLINE=1 $(BIN)/python -m docs.website site --twice

bench: .venv/tested
	HF_HUB_OFFLINE=1 $(BIN)/python -m benchmarks

torture: .venv/tested
	HF_HUB_OFFLINE=1 ATTNVIZ_KILLS=120 ATTNVIZ_SEED=$$$$ $(BIN)/pytest tests/features/export/test_safety.py

fuzz: .venv/tested
	HF_HUB_OFFLINE=1 ATTNVIZ_FUZZ=30000 $(BIN)/pytest tests/cli/test_fuzz.py tests/cli/test_fuzz_readers.py tests/cli/test_fuzz_seams.py

mutation: .venv/tested
	$(BIN)/python -m tests.mutation --count 20 --seed $$$$

clean:
	rm -rf .venv $(OUT) gallery site build dist
