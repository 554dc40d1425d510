"""A guided tour of five stops."""
