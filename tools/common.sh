# Sourced by the scripts beside it.

# log_end LOG: what matters of a failed command's log: the first compiler errors, else its end.
log_end() {
    local errors
    # The command line that ninja repeats says nothing to a reader.
    errors=$(awk '/^FAILED:/ { on = 1 } on && !/ -o .* -c /' "$1" | head -n 40)
    if [[ -n $errors ]]; then echo "$errors"; else tail -n 40 "$1"; fi
}

# show_progress: shows how far ninja, whose output is read, has come: a line that changes where someone watches, else a
# line every 30 s.
show_progress() {
    local line shown=$SECONDS
    while IFS= read -r line; do
        [[ $line == \[* ]] || continue
        if [[ -t 1 ]]; then
            printf '\r\e[K      %s' "${line%%]*}]"
        elif ((SECONDS - shown >= 30)); then
            printf '      %s\n' "${line%%]*}]"
            shown=$SECONDS
        fi
    done
    [[ ! -t 1 ]] || printf '\r\e[K'
}
