"""The man pages of section 3, a page for each public call, from the header that says what each does: so there is one place where that is said.

    from_header.py OUT_DIR HEADER...

A call's page has its blocking and its callback form, what is written over them, and the types of the header that they use. The callback form has a page that
leads to it. A call over which nothing is written is a mistake."""
import os
import pathlib
import re
import sys

PAGE = """.TH {upper} 3 "" "Holdfast" "Holdfast"
.SH NAME
{names} \\- {brief}
.SH SYNOPSIS
.nf
.B #include <{header}>
.sp
{synopsis}
.fi
.SH DESCRIPTION
{text}
{returns}{types}.SH SEE ALSO
.BR {overview} (3)
"""


def escaped(text):
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return "\n".join("\\&" + line if line[:1] in ".'" else line for line in text.split("\n"))


def comment_lines(comment):
    """Without the frame of the comment; two spaces that begin a line of the source are its own."""
    body = comment.strip()[3:-2]
    return [re.sub(r"^ \* ?", "", line).rstrip() for line in body.split("\n")]


def paragraphs(comment):
    """(text, [(parameter, what it is)], what is returned)"""
    text, parameters, returns, into = [], [], [], None
    for line in comment_lines(comment):
        m = re.match(r"^ (\w+) {2,}(\S.*)$", line)
        if m and m.group(1) == "returns":
            into = returns
            returns.append(m.group(2))
        elif m:
            into = [m.group(2)]
            parameters.append((m.group(1), into))
        elif into is not None and line.startswith("   "):
            into.append(line.strip())
        else:
            into = None
            text.append(line.strip())
    return " ".join(text), [(n, " ".join(t)) for n, t in parameters], " ".join(returns)


def declarations(source):
    """(name, declaration, the comment over it or "")."""
    comment = ""
    for m in re.finditer(r"/\*\*?(?:[^*]|\*(?!/))*\*/|HF_API [^;]*;|(?:struct|enum|typedef)\b[^;{}()]*\{|#define[^\n]*", source):
        token = m.group(0)
        if token.startswith("/**"):
            comment = token
        elif token.startswith("HF_API"):
            declaration = re.sub(r"\s+", " ", token[len("HF_API "):])
            yield re.search(r"(hf_\w+)\(", declaration).group(1), declaration, comment
            comment = ""
        elif not token.startswith("/*"):
            comment = "" if token.startswith("#") else comment


def type_sources(source):
    """name -> how the header defines it, with what is written over it."""
    found = {}
    for m in re.finditer(r"((?:/\*\*(?:[^*]|\*(?!/))*\*/\n)?)((?:struct|enum) (hf_\w+) \{\n.*?\n\};)", source, re.S):
        found[m.group(3)] = m.group(1) + m.group(2)
    for m in re.finditer(r"((?:/\*\*(?:[^*]|\*(?!/))*\*/\n)?)(typedef void \(\*(hf_\w+)\)\([^;]*;)", source):
        found[m.group(3)] = m.group(1) + m.group(2)
    return found


def types_of(words, types):
    """Those that are named, and those that these name; not the codes, which the overview has."""
    wanted, todo = [], list(words)
    while todo:
        name = todo.pop(0)
        if name in types and name not in wanted and not name.endswith("_code"):
            wanted.append(name)
            todo += re.findall(r"\bhf_\w+\b", re.sub(r"/\*.*?\*/", "", types[name], flags=re.S))
    return wanted


def page(header, overview, base, forms, types):
    texts, parameters, returns = [], [], []
    for name, _, comment in forms:
        text, more, result = paragraphs(comment) if comment else ("", [], "")
        texts += [f".B {name}:\n{escaped(text)}" if name != base and text else escaped(text)] if text else []
        parameters += more
        returns += [result] if result else []
    assert texts, f"{base}: nothing is written over it"
    brief = re.split(r"[.:;,] ", re.sub(r"^[^.]*\.$", lambda m: m.group(0)[:-1], texts[0]))[0].rstrip(".")
    synopsis = "\n".join(f'.B "{escaped(d)}"' for _, d, _ in forms)
    text = "\n.PP\n".join(texts) + "".join(f"\n.TP\n.I {n}\n{escaped(t)}" for n, t in parameters)
    used = types_of(re.findall(r"\bhf_\w+\b", " ".join(d for _, d, _ in forms)), types)
    shown = "\n\n".join(types[n] for n in used)
    return PAGE.format(upper=base.upper(), names=", ".join(n for n, _, _ in forms), brief=brief[:1].lower() + brief[1:], header=header, synopsis=synopsis, text=text,
                       returns=f".SH RETURN VALUE\n{escaped('; '.join(returns))}\n" if returns else "",
                       types=f".SH TYPES\n.nf\n{escaped(shown).replace(chr(9), '        ')}\n.fi\n" if used else "", overview=overview)


def main(out, headers):
    out.mkdir(exist_ok=True)
    for old in out.glob("*.3"):
        old.unlink()
    for path in headers:
        source = pathlib.Path(path).read_text()
        types, groups = type_sources(source), {}
        overview = "hf_fence" if "fence" in pathlib.Path(path).name else "libholdfast"
        for name, declaration, comment in declarations(source):
            groups.setdefault(name.removesuffix("_async"), []).append((name, declaration, comment))
        for base, forms in groups.items():
            (out / f"{base}.3").write_text(page(pathlib.Path(path).name, overview, base, forms, types))
            for name, _, _ in forms:
                if name != base:
                    (out / f"{name}.3").write_text(f".so man3/{base}.3\n")
    os.utime(out)  # what is built is the folder: it is as new as what is in it


main(pathlib.Path(sys.argv[1]), sys.argv[2:])
