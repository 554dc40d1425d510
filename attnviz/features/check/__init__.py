"""Whether recorded attention, or a module that attends, is right; and what is wrong with it."""
