"""The choice of the Maven repository that the local broker's artefacts come from."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqio.local import LocalBrokerError, artefacts

MIRROR = "<mirror><id>{id}</id><mirrorOf>{of}</mirrorOf><url>{url}</url>{more}</mirror>"


def settings(*mirrors: str, servers: str = "", namespace: str = "", more: str = "") -> str:
    return f"<settings{namespace}><mirrors>{''.join(mirrors)}</mirrors><servers>{servers}</servers>{more}</settings>"


def mirror(of: str, url: str = "https://mirror.invalid/maven/", name: str = "m", more: str = "") -> str:
    return MIRROR.format(id=name, of=of, url=url, more=more)


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    (tmp_path / ".m2").mkdir()
    return {"HOME": str(tmp_path), "PATH": ""}


def write_user(environ: dict[str, str], text: str) -> Path:
    path = Path(environ["HOME"], ".m2", "settings.xml")
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("pattern", "covers"),
    [
        ("*", True),
        ("central", True),
        ("external:*", True),
        ("other,central", True),
        ("other, central ", True),
        ("*,!other", True),
        ("*,!central", False),
        ("!central,*", False),
        ("external:*,!central", False),
        ("external:http:*", False),
        ("other", False),
        ("central2", False),
        ("", False),
    ],
)
def test_mirror_of_follows_mavens_syntax(pattern: str, covers: bool) -> None:
    assert artefacts.mirrors_central(pattern) is covers


def test_without_settings_the_default_is_the_repository_of_beam(
    environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(artefacts, "default_maven_repository", lambda: "https://beams.invalid/maven2")
    assert artefacts.find_repository(environ).url == "https://beams.invalid/maven2"
    write_user(environ, settings(mirror("external:http:*")))
    assert artefacts.find_repository(environ).url == "https://beams.invalid/maven2"


def test_the_environment_variable_wins_over_settings(environ: dict[str, str]) -> None:
    write_user(environ, settings(mirror("*")))
    environ[artefacts.REPOSITORY_VARIABLE] = "https://me:p%40ss@mine.invalid:8443/repo/"
    repository = artefacts.find_repository(environ)
    assert repository.url == "https://mine.invalid:8443/repo"
    assert repository.credentials == ("me", "p@ss")
    assert "p@ss" not in f"{repository} {repository!r}"


@pytest.mark.parametrize("url", ["mine.invalid/repo", "ftp://mine.invalid/repo", "/srv/repo"])
def test_an_address_that_is_none_is_refused(environ: dict[str, str], url: str) -> None:
    environ[artefacts.REPOSITORY_VARIABLE] = url
    with pytest.raises(LocalBrokerError, match=r"not the address of a Maven repository"):
        artefacts.find_repository(environ)


def test_a_wrong_address_is_reported_without_its_password() -> None:
    with pytest.raises(LocalBrokerError) as caught:
        artefacts.find_repository({artefacts.REPOSITORY_VARIABLE: "ftp://user:secret@host/maven"})
    assert "'ftp://host/maven'" in str(caught.value)
    assert "secret" not in str(caught.value)


def test_an_exact_mirror_wins_over_an_earlier_pattern(environ: dict[str, str]) -> None:
    write_user(environ, settings(mirror("*", "https://any.invalid"), mirror("central", "https://exact.invalid", "e")))
    assert artefacts.find_repository(environ).url == "https://exact.invalid"


def test_the_users_settings_win_over_the_installations(environ: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "maven" / "conf").mkdir(parents=True)
    (tmp_path / "maven" / "conf" / "settings.xml").write_text(settings(mirror("*", "https://shared.invalid")))
    environ["MAVEN_HOME"] = str(tmp_path / "maven")
    assert artefacts.find_repository(environ).url == "https://shared.invalid"
    write_user(environ, settings(mirror("*", "https://users.invalid")))
    assert artefacts.find_repository(environ).url == "https://users.invalid"


def test_settings_are_read_with_namespace_and_placeholders(environ: dict[str, str]) -> None:
    environ["TOKEN"] = "secret"
    server = "<server><id>m</id><username>me</username><password>${env.TOKEN}</password></server>"
    namespace = ' xmlns="urn:any"'
    path = write_user(environ, settings(mirror("central"), servers=server, namespace=namespace))
    repository = artefacts.find_repository(environ)
    assert (repository.url, repository.credentials) == ("https://mirror.invalid/maven", ("me", "secret"))
    assert str(path) in repository.origin


def test_a_servers_http_headers_are_kept(environ: dict[str, str]) -> None:
    header = "<property><name>Private-Token</name><value>t</value></property>"
    server = f"<server><id>m</id><configuration><httpHeaders>{header}</httpHeaders></configuration></server>"
    write_user(environ, settings(mirror("*"), servers=server))
    repository = artefacts.find_repository(environ)
    assert repository.headers == (("Private-Token", "t"),)
    assert repository.credentials is None


def test_a_password_that_maven_encrypted_is_an_error_with_a_remedy(environ: dict[str, str]) -> None:
    server = "<server><id>m</id><username>me</username><password>{COQLCE6DU6GtcS5P=}</password></server>"
    write_user(environ, settings(mirror("*"), servers=server))
    with pytest.raises(LocalBrokerError, match=artefacts.REPOSITORY_VARIABLE):
        artefacts.find_repository(environ)


def test_a_blocking_mirror_is_an_error(environ: dict[str, str]) -> None:
    write_user(environ, settings(mirror("*", more="<blocked>true</blocked>")))
    with pytest.raises(LocalBrokerError, match="blocks"):
        artefacts.find_repository(environ)


def test_settings_that_are_no_xml_are_an_error_naming_the_file(environ: dict[str, str]) -> None:
    path = write_user(environ, "<settings>")
    with pytest.raises(LocalBrokerError, match=str(path)):
        artefacts.find_repository(environ)


def test_other_settings_can_be_named(environ: dict[str, str], tmp_path: Path) -> None:
    other = tmp_path / "other.xml"
    other.write_text(
        settings(mirror("*", "https://other.invalid"), more=f"<localRepository>{tmp_path}/r</localRepository>")
    )
    write_user(environ, settings(mirror("*", "https://users.invalid")))
    environ[artefacts.SETTINGS_VARIABLE] = str(other)
    assert artefacts.find_repository(environ).url == "https://other.invalid"
    assert artefacts.local_repository(environ) == tmp_path / "r"
    environ[artefacts.SETTINGS_VARIABLE] = str(tmp_path / "missing.xml")
    with pytest.raises(LocalBrokerError, match=r"missing\.xml"):
        artefacts.find_repository(environ)
