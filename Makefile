# Every target sets up what it needs in .venv, once: the stamp is newer than what it was made of.
PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python
STAMP := $(VENV)/.installed
OLDEST := .venv-oldest
NEWEST := .venv-newest
# Versions of Beam and PySpark for test-versions: the first and the last that SparkRunner takes, and between.
VERSIONS ?= 2.75.0-4.1.0 2.75.0-4.2.0 2.76.0-4.2.1 2.77.0-4.3.0
# Images of containers often set the first, and each process that tests start would compile all modules anew. With the
# second no assertion fails, with the third no C is tested.
unexport PYTHONDONTWRITEBYTECODE PYTHONOPTIMIZE RMQIO_PURE_PYTHON
# Broker tests and the demo need a Java runtime; machines without one get it as a wheel.
JAVA := $(shell [ -n "$$JAVA_HOME" ] || command -v java >/dev/null 2>&1 || echo requirements/java.txt)
EXTRAS := $(if $(JAVA),dev$(shell echo ,)java,dev)
EXTENSIONS := rmqio/wire/_fast rmqio/serde/avro/_bulk rmqio/serde/_numbers rmqio/enrich/table/_look
SOURCES := setup.py $(wildcard $(addsuffix *.[ch],$(EXTENSIONS)))

.PHONY: help audit bench bench-runners bench-spark chaos clean coverage demo dist docs fuzz gate-again lint lock test \
	test-all test-clone test-fast test-mutants test-newest test-oldest test-pythons test-sigma test-versions
.DEFAULT_GOAL := help

help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 14

# $(call install,FILES): what is in these files of requirements/ and nothing else, then rmqio itself. uv installs in a
# third of pip's time; its version and hashes are in the files, too.
define install
	@$(PYTHON) -c 'import sys; sys.exit("rmqio needs Python 3.11 or newer, this is " + sys.version.split()[0] + "; set PYTHON=") if sys.version_info < (3, 11) else None'
	@$(PY) -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv $(VENV)
	@rm -f $(STAMP) $(VENV)/.demo $(VENV)/.spark
	@sed -n '/^uv==/,/# via/p' $(firstword $(1)) >$(VENV)/uv.txt
	@$(PY) -m pip install --quiet --disable-pip-version-check --require-hashes --requirement $(VENV)/uv.txt
	@$(VENV)/bin/uv pip sync --python $(PY) --require-hashes --build-constraint $(firstword $(1)) $(1)
	@$(VENV)/bin/uv pip install --python $(PY) --quiet --no-deps --no-build-isolation --editable .
endef

$(STAMP): pyproject.toml requirements/dev.txt $(JAVA) $(SOURCES)
	@echo "installing all that tests need into $(VENV), 1.4 GB: about a minute, and some more the first time"
	$(call install,requirements/dev.txt $(JAVA))
	@touch $@

# The demo needs only a part of that, and Spark only on SparkRunner, which it runs on if nothing else is said.
DEMO := $(if $(filter-out SparkRunner,$(RUNNER)),demo,spark)
DEMO_STAMP := $(or $(wildcard $(STAMP)),$(wildcard $(VENV)/.spark),$(VENV)/.$(DEMO))

$(VENV)/.demo $(VENV)/.spark: $(VENV)/.%: pyproject.toml requirements/%.txt $(JAVA) $(SOURCES)
	@echo "demo: installing Beam$(if $(filter spark,$*), and PySpark) into $(VENV), $(if $(filter spark,$*),1.1 GB,0.5 GB): about 20 s, and one or two minutes the first time"
	$(call install,requirements/$*.txt $(JAVA))
	@touch $@

lock:  ## the newest versions of all packages, with their hashes, into requirements/
	@test -x $(VENV)/bin/uv || { echo "make lock needs .venv: make test-fast makes it"; exit 2; }
	@for each in dev demo spark java; do \
		extra=; test $$each = demo || extra="--extra $$each"; \
		same="--constraint requirements/dev.txt"; test $$each != dev || same=--upgrade; \
		$(VENV)/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
			--custom-compile-command "make lock" --group install $$extra $$same pyproject.toml \
			--output-file requirements/$$each.txt || exit 1; \
	done

demo: $(DEMO_STAMP)  ## start a real RocketMQ, run pipelines/province.py on it, show the result
	@$(PY) pipelines/demo.py $(if $(RUNNER),--runner=$(RUNNER)) $(ARGS)

# What must pass before a change lands: tests/README.md. Make passes a signal on, and waits for the program that has it.
test:  ## the gate: lint, types and documents, unit tests, then real brokers and runners; 20 minutes
	@exec $(PYTHON) -m tests.gate.start

test-clone:  ## the gate on a fresh clone of HEAD, before it is delivered; its reports go to build/
	@exec $(PYTHON) -m tests.gate.clone

test-mutants:  ## plants each fault of tests/mutants into a clone of HEAD, which a test of the gate must see; hours; ARGS="--resume --only 03,07"
	@exec $(PYTHON) -m tests.mutants $(ARGS)

gate-again:  ## the gate on fresh clones, N=10 times, beside BUSY=0 endless loops; keeps each gate.json in build/again
	@exec $(PYTHON) -m tests.gate.clone --times $(or $(N),10) --busy $(or $(BUSY),0)

# The gate has one environment, that of the lock. The parts have others, too, take more than a minute, or fetch servers.
test-all: $(STAMP)  ## all tests there are, by part: what has not passed on HEAD; PART=3 or PART=sql runs one; many hours
	@exec $(PY) -m tests.gate.parts $(if $(PART),--part $(PART)) $(ARGS)

# pip compiles no modules, because the tests import only a part of them: it takes a quarter of the time.
$(OLDEST)/.installed: pyproject.toml tests/oldest.txt $(SOURCES)
	@test -x $(OLDEST)/bin/python || $(PYTHON) -m venv $(OLDEST)
	@echo "installing the oldest versions into $(OLDEST) ..."
	@$(OLDEST)/bin/python -m pip install --no-compile --quiet --disable-pip-version-check --constraint tests/oldest.txt \
		--editable . pytest pytest-timeout pytest-xdist hypothesis fastavro jsonschema-rs lark msgspec trustme
	@touch $@

# tests/helpers/again.py says which tests run again.
test-oldest: $(OLDEST)/.installed  ## the tests that need no broker and can differ, on the oldest Beam that is supported
	@$(OLDEST)/bin/python -m pytest -m 'not broker and not slow and not spark' --again beam --ignore=tests/runners \
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

.venv-python-%/.installed: pyproject.toml $(SOURCES)
	@test -x .venv-python-$*/bin/python || $(call python_of,$*) -m venv .venv-python-$*
	@echo "installing for Python $* into .venv-python-$* ..."
	@.venv-python-$*/bin/python -m pip install --no-compile --quiet --disable-pip-version-check --editable '.[$(EXTRAS)]'
	@touch $@

# Leaves out the files whose tests all need a broker or Spark: each process would import them.
AGAIN := tests/unit tests/contract

test-pythons: $(patsubst %,.venv-python-%/.installed,$(OTHERS))  ## fast tests that can differ, on all other versions of Python; PYTHONS="3.12 3.13"
	@missing="$(strip $(filter-out $(HERE) $(OTHERS),$(PYTHONS)))"; test -z "$$missing" || { echo "Python $$missing: not installed, so not tested; PYTHONS= names others"; exit 1; }
	@for each in $(OTHERS); do \
		echo "Python $$each"; \
		.venv-python-$$each/bin/python -m pytest -m 'not broker and not slow and not spark' --again python \
			-n 2 --dist loadfile $(ARGS) $(AGAIN) || exit 1; \
	done

test-newest:  ## fast tests that can differ, with the newest versions of all packages; the lock has none of them
	@test -x $(NEWEST)/bin/python || $(PYTHON) -m venv $(NEWEST)
	@echo "installing the newest versions into $(NEWEST) ..."
	@$(NEWEST)/bin/python -m pip install --no-compile --quiet --disable-pip-version-check --upgrade --upgrade-strategy eager \
		--editable '.[$(EXTRAS)]'
	@$(NEWEST)/bin/python -m pytest -m 'not broker and not slow and not spark' --again python \
		-n 2 --dist loadfile $(ARGS) $(AGAIN)

test-sigma: $(STAMP)  ## how many of the Sigma rules in DIR=... load, and why others do not
	@test -n "$(DIR)" || { echo 'make test-sigma DIR=/path/to/rules'; exit 2; }
	@$(PY) -m rmqio rules check --format sigma '$(DIR)/**/*.yml' $(ARGS)

test-fast: $(STAMP)  ## before a commit: ruff, mypy, and a sample of the tests that need no broker; two minutes
	@$(PY) -m tests.gate.linters
	@$(PY) -m pytest --gate unit --again daily -n 3 --dist loadfile --no-loadscope-reorder $(ARGS) tests/unit tests/contract

fuzz: $(STAMP)  ## a million inputs for each decoder of foreign bytes; half an hour; ARGS="--targets avro --keep" adds to the corpus
	@rm $(STAMP)  # what follows adds packages, and the next target takes them away
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

lint: $(STAMP)  ## ruff, mypy, layers, documents, and the start of each program; two minutes
	@$(PY) -m tests.gate --only lint $(ARGS)

audit: $(STAMP)  ## known vulnerabilities of what is installed; fails if the database does not answer
	@$(PY) -m tests.helpers.audit

docs: $(STAMP)  ## the documentation's site in build/site; warnings and broken links are errors; half a minute
	@$(PY) -m docs.tools.build $(ARGS)

dist: $(STAMP)  ## a release: sdist and wheels with and without the C extension in dist/, each tried in an empty environment
	@$(PY) -m tests.release $(ARGS)

clean:  ## remove the virtual environments and what tools left
	rm -rf $(VENV) $(OLDEST) $(NEWEST) .venv-python-* .venv-beam-* build dist *.egg-info .pytest_cache .ruff_cache .hypothesis bench/out
