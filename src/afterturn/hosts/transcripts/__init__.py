"""Past conversations of other programs, one module per format."""

# The content of files follows this line, and may contain the line that ends it. The constant is here because a prompt
# without a helper waits for the modules that its hook imports.
REFERENCED_FILES = "--- Content from referenced files ---"
