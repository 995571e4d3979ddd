"""The dashboard: the report's page, live, in a browser. It reads run directories and writes into inboxes only."""
