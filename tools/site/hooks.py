"""Lets MkDocs build the site: adds the pages outside docs/, and makes links mean the same there and in the repository."""
import os

import pages
from mkdocs.structure.files import File


def on_config(config):
    """Gives headings the same anchors as the hosting platform."""
    config.mdx_configs.setdefault("toc", {})["slugify"] = lambda words, separator: pages.slug(words)
    return config


def on_files(files, config):
    """Adds the pages outside docs/, from their folders in the repository."""
    for name in pages.outside():
        files.append(File.generated(config, name, abs_src_path=str(pages.SOURCE / name)))
    return files


def on_page_markdown(markdown, page, config, files):
    """Points links at the pages of the site. A link to another file of the repository becomes its text and the file's
    name, because the site has no copy of the sources."""
    place = page.file.src_uri
    name = place if place in pages.outside() else f"{pages.DOCS}/{place}"

    def replacement(found):
        target = found["target"]
        if not pages.is_relative(target):
            return found[0]
        path, anchor = pages.resolve(name, target)
        wanted = pages.place(path)
        if files.get_file_from_path(wanted) is None and (pages.SOURCE / path).exists():
            text = found["text"]
            return text if path in text.replace("`", "") else f"{text} (`{path}`)"
        relative = os.path.relpath(wanted, os.path.dirname(place) or ".")
        return f"{found['image']}[{found['text']}]({relative}{'#' + anchor if anchor else ''})"

    return pages.replace_links(markdown, replacement)
