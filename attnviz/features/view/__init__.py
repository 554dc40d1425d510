"""Every head of some texts on one offline page."""
