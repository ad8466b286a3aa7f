# Sourced by the scripts beside it.

# log_end LOG: what matters of a failed command's log: the first compiler errors, else its end.
log_end() {
    local errors
    # The command line that ninja repeats says nothing to a reader.
    errors=$(awk '/^FAILED:/ { on = 1 } on && !/ -o .* -c /' "$1" | head -n 40)
    if [[ -n $errors ]]; then echo "$errors"; else tail -n 40 "$1"; fi
}
