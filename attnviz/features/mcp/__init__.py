"""attnviz for programs that call tools: the Model Context Protocol over standard input and output.

``tools.py`` has the tools, plain methods over the library that answer with text, a kept file and
perhaps a picture; ``server.py`` alone knows the protocol's SDK. ``folders.py`` says which files may
be read and keeps an answer short, ``results.py`` writes results.
"""
