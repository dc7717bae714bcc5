# Writes the table of errors into the troubleshooting guide, between its two markers and without the last three columns:
#   awk -f docs/errors.awk docs/reference/errors.md docs/guides/troubleshooting.md
FNR == NR { if (sub(/[^|]*\|[^|]*\|[^|]*\|$/, "")) table = table $0 "\n"; next }
/^<!-- errors -->/ { printf "%s\n\n%s\n", $0, table; skip = 1 }
/^<!-- end of errors -->/ { skip = 0 }
!skip
