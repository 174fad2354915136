"""What a language model lost, token by token: on the terminal and as a page."""
