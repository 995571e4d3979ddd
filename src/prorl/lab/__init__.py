"""What people look at: evaluations, reports, the dashboard, exports."""
