"""The checker of the built documentation site finds what is wrong with it."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "benchmarks"))
import docs_site  # noqa: E402 - it lies in benchmarks/, which is no package

GOOD = """
<html><head><link rel="stylesheet" href="style.css"><link rel="canonical" href="https://elsewhere.org/"></head>
<body><h2 id="part">Part</h2><a href="#part">here</a><a href="sub/page.html#there">there</a><a href="sub/">folder</a>
<a href="https://elsewhere.org/">elsewhere</a><a href="mailto:somebody">mail</a><img src="picture.png"></body></html>
"""
FAULTS = {
    '<a href="missing.html">': "index.html links to missing.html, which does not exist",
    '<a href="sub/page.html#gone">': "index.html links to sub/page.html#gone, where there is no such anchor",
    '<a href="#gone">': "index.html links to #gone, where there is no such anchor",
    '<img src="gone.png">': "index.html links to gone.png, which does not exist",
    '<script src="https://elsewhere.org/a.js"></script>': "index.html loads https://elsewhere.org/a.js",
    '<script src="//elsewhere.org/a.js"></script>': "index.html loads //elsewhere.org/a.js",
    '<link rel="preconnect" href="https://elsewhere.org">': "index.html loads https://elsewhere.org",
    '<img src="https://elsewhere.org/a.png">': "index.html loads https://elsewhere.org/a.png",
}


@pytest.fixture
def site(tmp_path):
    """A site in which all is well."""
    (tmp_path / "sub").mkdir()
    (tmp_path / "index.html").write_text(GOOD)
    (tmp_path / "sub" / "index.html").write_text('<a href="../index.html">back</a>')
    (tmp_path / "sub" / "page.html").write_text('<h2 id="there">There</h2><a href="page.html?q=1#there">here</a>')
    (tmp_path / "style.css").write_text("a { background: url(data:image/png;base64,xx), url('picture.png') }")
    (tmp_path / "picture.png").write_bytes(b"")
    return tmp_path


def test_a_good_site_has_no_faults(site):
    assert not list(docs_site.problems(site))


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_are_found(site, fault):
    (site / "index.html").write_text(GOOD + fault)
    assert list(docs_site.problems(site)) == [FAULTS[fault]]


@pytest.mark.parametrize("rule", ["url(https://elsewhere.org/font.woff)", '@import "https://elsewhere.org/a.css"'])
def test_styles_that_load_from_elsewhere_are_found(site, rule):
    (site / "style.css").write_text(f"a {{ {rule} }}")
    (fault,) = docs_site.problems(site)
    assert fault.startswith("style.css loads https://elsewhere.org/")


def test_names_that_the_reference_lacks_are_found(site):
    import gpf

    (site / "api").mkdir()
    for package in docs_site.PACKAGES:
        names = [name for name in getattr(gpf, package).__all__ if name != "Rules"]
        (site / "api" / f"{package}.html").write_text("".join(f'<a id="gpf.{package}.{name}"></a>' for name in names))
    assert list(docs_site.unlisted(site)) == ["api/network.html lacks gpf.network.Rules"]
