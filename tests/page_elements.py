"""A page as elements, so that a test asks for what it contains and not for its markup."""

from html.parser import HTMLParser

EMPTY = {"meta", "br", "link", "img", "input"}


class Element:
    """An element: its tag, attributes, parent, and the elements and texts in it."""

    def __init__(self, tag="", attributes=(), parent=None):
        self.tag, self.attributes, self.parent, self.inside = tag, dict(attributes), parent, []

    @property
    def text(self):
        """The words in it, outside scripts and styles."""
        if self.tag in ("script", "style"):
            return ""
        return "".join(part if isinstance(part, str) else part.text for part in self.inside)

    @property
    def words(self):
        """Its text with single blanks."""
        return " ".join(self.text.split())

    def all(self, tag=None, **attributes):
        """Return the elements in it of a tag, with attributes (``class_`` is one of several classes)."""
        found = []
        for part in self.inside:
            if isinstance(part, Element):
                if tag in (None, part.tag) and all(
                    part.has(name, value) for name, value in attributes.items()
                ):
                    found.append(part)
                found += part.all(tag, **attributes)
        return found

    def has(self, name, value):
        if name == "class_":
            return value in (self.attributes.get("class") or "").split()
        return self.attributes.get(name) == value

    def one(self, tag=None, **attributes):
        (found,) = self.all(tag, **attributes)
        return found

    def table(self):
        """Return the texts of the cells of the rows of a table."""
        return [[cell.words for cell in row.all("td")] for row in self.one("tbody").all("tr")]

    def outline(self):
        """Yield what a reader sees: a line for each heading, sentence, row of a table, figure, and its links."""
        if self.tag in ("script", "style", "title"):
            return
        if self.tag == "figure":
            yield f"[figure {self.attributes['id']}]"
        elif (
            self.tag in ("h1", "h2", "h3", "p", "li", "summary", "dt", "dd", "nav", "tr")
            and self.words
        ):
            cells = [cell.words for cell in self.all() if cell.tag in ("th", "td")]
            links = [f"({each.attributes['href']})" for each in self.all("a")]
            yield " ".join(
                [f"{self.tag}:", " | ".join(cells) if self.tag == "tr" else self.words, *links]
            )
        else:
            for part in self.inside:
                yield from part.outline() if isinstance(part, Element) else ()


class _Parser(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.at = self.root = Element()
        self.feed(text)
        assert self.at is self.root, f"{self.at.tag} is not closed"

    def handle_starttag(self, tag, attrs):
        element = Element(tag, attrs, self.at)
        self.at.inside.append(element)
        self.at = self.at if tag in EMPTY else element

    def handle_endtag(self, tag):
        assert self.at.tag == tag, f"{tag} closes {self.at.tag}"
        self.at = self.at.parent

    def handle_data(self, data):
        self.at.inside.append(data)


def elements(text):
    """Return the root of a page, whose elements are all closed in order."""
    return _Parser(text).root
