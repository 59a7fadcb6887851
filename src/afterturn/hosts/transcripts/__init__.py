"""Past conversations of other programs, one module per format."""

# What follows is the content of files, which may contain the line that ends it. It is here because a prompt without a
# helper waits for the modules that its hook imports.
REFERENCED_FILES = "--- Content from referenced files ---"
