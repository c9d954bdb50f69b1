# Every target sets up what it needs in .venv, once: the stamp is newer than pyproject.toml.
PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python
STAMP := $(VENV)/.installed
OLDEST := .venv-oldest
DOCS := .venv-docs
# Versions of Beam and PySpark for test-versions: the first and the last that SparkRunner takes, and between.
VERSIONS ?= 2.75.0-4.1.0 2.75.0-4.2.0 2.76.0-4.2.1 2.77.0-4.3.0
# Images of containers often set it. Each of the thousand processes that tests start would compile all modules anew.
unexport PYTHONDONTWRITEBYTECODE
# Broker tests and the demo need a Java runtime; machines without one get it as a wheel.
EXTRAS := $(shell if [ -n "$$JAVA_HOME" ] || command -v java >/dev/null 2>&1; then echo dev; else echo dev,java; fi)

.PHONY: help chaos demo dist fuzz test test-broker test-sigma test-oldest test-versions test-pythons test-clusters test-examples test-exhaustive test-fast test-unit test-systems coverage bench bench-runners bench-spark lint docs clean
.DEFAULT_GOAL := help

help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 14

$(STAMP): pyproject.toml setup.py $(wildcard rmqio/wire/_fast*.[ch] rmqio/serde/avro/bulk/_bulk*.[ch])
	@$(PYTHON) -c 'import sys; sys.exit("rmqio needs Python 3.11 or newer, this is " + sys.version.split()[0] + "; set PYTHON=") if sys.version_info < (3, 11) else None'
	@test -x $(PY) || $(PYTHON) -m venv $(VENV)
	@echo "installing into $(VENV) ..."
	@$(PY) -m pip install --quiet --disable-pip-version-check --editable '.[$(EXTRAS)]'
	@touch $@

demo: $(STAMP)  ## start a real RocketMQ, run pipelines/province.py on it, show the result
	@$(PY) -m rmqio.pipelines.demo $(if $(RUNNER),--runner=$(RUNNER)) $(ARGS)

# Processes for the tests on brokers and runners. Two leave 40 % of two cores idle, which the other tests take. With
# three, and these beside them, waits of some tests run out.
WORKERS ?= 2

# The tests that need no broker never wait. At the lowest priority they get what the others leave.
# Of the other Pythons, the newest one runs here: what an older one between it and ours refuses, it refuses, too.
# What failed runs once more, alone: tests/README.md says what does not.
# The oldest Beam is installed first: its Python replaces the extension modules that the tests import. Other Pythons have
# their own, and are installed beside the tests. Tests at the lowest priority get three times as long before they end.
test: $(STAMP)  ## lint, types and all tests, on a real broker too; beside them those that need none, also on the oldest Beam and the newest Python
	@$(MAKE) --no-print-directory -j2 lint $(OLDEST)/.installed
	@$(PY) -m tests.helpers.beside build/test-beside.log \
		"$(MAKE) --no-print-directory test-unit test-oldest test-pythons PYTHONS=3.13 ARGS='--timeout 900 $(ARGS)'" "$(MAKE) --no-print-directory test-broker"

# pip compiles no modules, because the tests import only a part of them: it takes a quarter of the time.
$(OLDEST)/.installed: pyproject.toml setup.py tests/oldest.txt $(wildcard rmqio/wire/_fast*.[ch] rmqio/serde/avro/bulk/_bulk*.[ch])
	@test -x $(OLDEST)/bin/python || $(PYTHON) -m venv $(OLDEST)
	@echo "installing the oldest versions into $(OLDEST) ..."
	@$(OLDEST)/bin/python -m pip install --no-compile --quiet --disable-pip-version-check --constraint tests/oldest.txt \
		--editable . pytest pytest-timeout pytest-xdist hypothesis fastavro jsonschema-rs lark msgspec trustme
	@touch $@

# tests/helpers/again.py says which tests run again.
test-oldest: $(OLDEST)/.installed  ## the tests that need no broker and can differ, on the oldest Beam that is supported
	@$(OLDEST)/bin/python -m tests.helpers.once_more -m 'not broker and not slow and not spark and not exhaustive' --again beam --ignore=tests/runners \
		-n 2 --dist loadfile $(ARGS)

.venv-beam-%/.installed: pyproject.toml
	@test -x $(@D)/bin/python || $(PYTHON) -m venv $(@D)
	@echo "installing Beam and PySpark $* into $(@D) ..."
	@$(@D)/bin/python -m pip install --no-compile --quiet --disable-pip-version-check \
		'apache-beam==$(word 1,$(subst -, ,$*))' 'pyspark==$(word 2,$(subst -, ,$*))' \
		--editable '.[$(subst dev,spark,$(EXTRAS))]' pytest pytest-timeout pytest-xdist hypothesis fastavro \
		jsonschema-rs trustme PyHamcrest tenacity parameterized mock
	@touch $@

# Batch suite and streaming smoke tests. PySpark 4.1 leaves sockets to the collector, and has no streams. Two tests are
# left out, since each version would take longer:
# - larger_than_the_workers (test_memory.py) shuffles 286 MiB twice, to fill the memory of a worker.
# - assert_that (Beam's) is a pipeline that fails, and Spark tries a failed task again. test_runner.py has such failures.
UNIT := tests/unit/runners/spark
SPARK := tests/runners/spark
SPARK_BATCH := $(addprefix $(SPARK)/batch/test_,beam_suite.py runner.py memory.py processes.py) $(UNIT)/worker $(UNIT)/beam
SPARK_STREAMS := $(UNIT)/streaming $(addprefix $(SPARK)/streaming/test_,pipelines.py cut.py source.py)

test-versions: $(VERSIONS:%=.venv-beam-%/.installed)  ## SparkRunner on the Beams and PySparks that it takes; VERSIONS="2.77.0-4.3.0" chooses
	@failed=; for each in $(VERSIONS); do \
		for suite in "$(SPARK_BATCH)" "$(SPARK_STREAMS)"; do \
			case "$$each $$suite" in *-4.1.*/streaming\ *) continue;; esac; \
			echo "Beam-PySpark $$each: $$suite"; \
			.venv-beam-$$each/bin/python -m pytest -q $$suite \
				-k 'not larger_than_the_workers and not assert_that' \
				-W ignore::pytest.PytestUnraisableExceptionWarning $(ARGS) || failed="$$failed $$each"; \
		done; \
	done; test -z "$$failed" || { echo "failed on:$$failed"; exit 1; }

# Versions of Python for test-pythons: those that are installed, as commands or by pyenv, but for that of .venv.
PYTHONS ?= 3.12 3.13
PYENV := $(or $(PYENV_ROOT),$(HOME)/.pyenv)
python_of = $(firstword $(foreach each,python$(1) $(wildcard $(PYENV)/versions/$(1)*/bin/python),$(shell $(each) -c 'import ensurepip, sys; print(sys.executable)' 2>/dev/null)))
HERE = $(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])')
OTHERS = $(foreach each,$(filter-out $(HERE),$(PYTHONS)),$(if $(call python_of,$(each)),$(each)))

.venv-python-%/.installed: pyproject.toml setup.py $(wildcard rmqio/wire/_fast*.[ch] rmqio/serde/avro/bulk/_bulk*.[ch])
	@test -x .venv-python-$*/bin/python || $(call python_of,$*) -m venv .venv-python-$*
	@echo "installing for Python $* into .venv-python-$* ..."
	@.venv-python-$*/bin/python -m pip install --no-compile --quiet --disable-pip-version-check --editable '.[$(EXTRAS)]'
	@touch $@

# Leaves out the files whose tests all need a broker or Spark: each process would import them.
AGAIN := tests/unit tests/contract

test-pythons: $(patsubst %,.venv-python-%/.installed,$(OTHERS))  ## fast tests that can differ, on all other versions of Python; PYTHONS="3.12 3.13"
	@missing="$(strip $(filter-out $(HERE) $(OTHERS),$(PYTHONS)))"; test -z "$$missing" || echo "Python $$missing: not installed, so not tested"
	@for each in $(OTHERS); do \
		echo "Python $$each"; \
		.venv-python-$$each/bin/python -m tests.helpers.once_more -m 'not broker and not slow and not spark and not exhaustive' --again python \
			-n 2 --dist loadfile $(ARGS) $(AGAIN) || exit 1; \
	done

test-clusters: $(STAMP)  ## on real clusters of Flink and Spark, started here; fetches Flink once; under 20 minutes
	@$(PY) -m pytest -m cluster tests/runners $(ARGS)

test-examples: $(STAMP)  ## the programs of examples/, on a broker and a Spark that the tests start; under ten minutes
	@$(PY) -m pytest -m 'examples and not cluster' tests/examples $(ARGS)

test-systems: $(STAMP)  ## real servers of Kafka, OpenSearch, Elasticsearch, HDFS, an old RocketMQ; fetches them once; some minutes
	@$(PY) -m pytest -m systems tests/integration $(ARGS)

test-sigma: $(STAMP)  ## how many of the Sigma rules in DIR=... load, and why others do not
	@test -n "$(DIR)" || { echo 'make test-sigma DIR=/path/to/rules'; exit 2; }
	@$(PY) -m rmqio rules check --format sigma '$(DIR)/**/*.yml' $(ARGS)

test-exhaustive: $(STAMP)  ## what is too long for make test: Beam's suites on Spark streams and Flink, more runners and faults; over two hours
	@$(PY) -m pytest -m exhaustive tests/unit tests/integration tests/runners $(ARGS)

test-fast: $(STAMP)  ## for daily use: a sample of the tests that need no broker; two minutes
	@$(PY) -m pytest -m 'not broker and not slow and not spark and not exhaustive' --again daily -n 2 --dist loadfile $(ARGS)

test-unit: $(STAMP)  ## all tests that need no broker; some minutes
	@$(PY) -m tests.helpers.once_more -m 'not broker and not slow and not spark and not exhaustive' -n 2 --dist loadfile $(ARGS)

test-broker: $(STAMP)  ## the tests on real brokers and runners that make test runs; WORKERS=2 processes, of 3 GB each
	@$(PY) -m tests.helpers.once_more -m '(broker or slow or spark) and not exhaustive and not cluster and not examples and not systems' \
		-n $(WORKERS) --dist loadfile --no-loadscope-reorder --durations 40 $(ARGS)

fuzz: $(STAMP)  ## a million inputs for each decoder of foreign bytes; half an hour; ARGS="--targets avro --keep" adds to the corpus
	@$(PY) -m pip install --quiet --disable-pip-version-check --editable '.[fuzz]'
	@$(PY) -m tests.fuzz $(ARGS)

chaos: $(STAMP)  ## ten minutes of random faults on a real cluster; ARGS="--runner spark|flink|direct --minutes 1 --seed N"
	@$(PY) -m tests.chaos $(ARGS)

coverage: $(STAMP)  ## branches of the codecs that their tests reach; fails below 95 %
	@RMQIO_PURE_PYTHON=1 $(PY) -m coverage run --branch --source=rmqio.wire -m pytest -q tests/unit/wire
	@$(PY) -m coverage report --show-missing --skip-covered --fail-under=95

bench: $(STAMP)  ## side by side with Java's own client; prints tables
	@$(PY) -m bench $(ARGS)

bench-runners: $(STAMP)  ## the three pipelines on all runners: start-up, throughput, memory; prints tables
	@$(PY) -m bench.runners $(ARGS)

bench-spark: $(STAMP)  ## the Spark runner side by side with Beam's portable one; prints tables
	@$(PY) -m bench.spark $(ARGS)

lint: $(STAMP)  ## ruff, mypy, and known vulnerabilities of what is installed
	@$(VENV)/bin/ruff check .
	@$(VENV)/bin/ruff format --check .
	@$(PY) -m tests.helpers.typecheck
	@$(PY) -m tests.helpers.audit

$(DOCS)/.installed: pyproject.toml
	@test -x $(DOCS)/bin/python || $(PYTHON) -m venv $(DOCS)
	@echo "installing the tools of the documentation into $(DOCS) ..."
	@$(DOCS)/bin/python -m docs.tools.requirements > $(DOCS)/requirements.txt
	@$(DOCS)/bin/python -m pip install --quiet --disable-pip-version-check --requirement $(DOCS)/requirements.txt
	@touch $@

docs: $(DOCS)/.installed  ## the documentation's site in build/site; warnings and broken links are errors; half a minute
	@$(DOCS)/bin/python -m docs.tools.build $(ARGS)

dist: $(STAMP)  ## a release: sdist and wheels with and without the C extension in dist/, each tried in an empty environment
	@$(PY) -m tests.release $(ARGS)

clean:  ## remove the virtual environment and what tools left
	rm -rf $(VENV) $(OLDEST) $(DOCS) .venv-python-* .venv-beam-* build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis bench/out
