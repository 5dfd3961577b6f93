"""Terms: explained where they first appear, and the same in the documentation."""

from pathlib import Path

from gpf.reports.glossary import TERMS, definitions, link_terms

DOCS = Path(__file__).parents[2] / "docs" / "glossary.md"


def test_the_documentation_has_every_term_with_the_same_sentence():
    lines = DOCS.read_text().splitlines()
    listed = [line for line in lines if line.startswith("- **")]
    assert [line for term, sentence in TERMS.items() if (line := f"- **{term}**: {sentence}") not in listed] == []
    assert listed == sorted(listed, key=str.lower)


def test_a_term_links_to_its_definition_where_it_first_appears_and_only_there():
    body, found = link_terms("<h2>SPL</h2><p>success and SPL, then SPL again; Whiffs</p>")
    assert found == ["SPL", "whiff"]
    assert body.startswith('<h2>SPL</h2><p>success and <a class="term" href="#term-spl" title="Success weighted')
    assert body.count("<a ") == 2
    assert ">Whiffs</a></p>" in body
    assert 'id="term-spl"' in definitions(found)


def test_attributes_and_parts_of_words_are_left_alone():
    body = '<img alt="the density of whiffs"><td data-of="SPL">belief_threshold, unfrozen</td><a href="#x">value</a>'
    assert link_terms(body) == (body, [])


def test_an_explanation_does_not_break_out_of_its_attribute():
    for term in TERMS:
        body, found = link_terms(term)
        assert found == [term]
        assert body.count("<") == body.count(">") == 2
