# Writes the values table into the chart's README, between its two markers:
#   awk -f charts/values.awk charts/winpool/values.yaml charts/winpool/README.md
# A row has the path of a value, its default, and the comment above it.
function row(value) {
    gsub(/\|/, "\\|", comment)
    table = table "| `" path "` | " (value == "" ? "" : "`" value "`") " | " comment " |\n"
}
FNR == NR && /^ *#/ { sub(/^ *# ?/, ""); comment = comment (comment == "" ? "" : " ") $0; next }
FNR == NR && /^ *[A-Za-z]+:/ {
    depth = (match($0, /[A-Za-z]/) - 1) / 2
    split($0, key, ":"); gsub(/ /, "", key[1]); keys[depth] = key[1]
    path = keys[0]
    for (i = 1; i <= depth; i++) path = path "." keys[i]
    value = $0; sub(/^[^:]*: ?/, "", value)
    if (value != "" || comment != "") row(value)
    comment = ""
    next
}
FNR == NR { comment = ""; next }
/<!-- values -->/ { print; print ""; print "| Value | Default | Description |"; print "|---|---|---|"; printf "%s", table; print ""; skip = 1 }
/<!-- end of values -->/ { skip = 0 }
!skip
