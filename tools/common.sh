# Sourced by the scripts beside it.

# log_end LOG: the important part of a failed command's log: the first compiler errors, else its end.
log_end() {
    local errors
    # Leave out the compiler's command line, which ninja repeats: it does not explain the error.
    errors=$(awk '/^FAILED:/ { on = 1 } on && !/ -o .* -c /' "$1" | head -n 40)
    if [[ -n $errors ]]; then echo "$errors"; else tail -n 40 "$1"; fi
}

# show_progress: reads ninja's output, and shows its progress with an estimate of the remaining time: one line that
# changes on a terminal, else a line every 30 s, also while ninja writes nothing.
show_progress() {
    local line status parts=() text begun=$SECONDS shown=$SECONDS
    while true; do
        status=0
        IFS= read -r -t 10 line || status=$?
        # A status over 128 means that `read` timed out: ninja writes nothing, but the estimate changes.
        ((status == 0 || status > 128)) || break
        if ((status == 0)) && [[ $line =~ ^\[([0-9]+)/([0-9]+)\] ]]; then parts=("${BASH_REMATCH[@]}"); fi
        ((${#parts[@]} > 0)) || continue
        text="${parts[0]} $(time_left "${parts[1]}" "${parts[2]}" $((SECONDS - begun)))"
        if [[ -t 1 ]]; then
            printf '\r\e[K      %s' "$text"
        elif ((SECONDS - shown >= 30)); then
            printf '      %s\n' "$text"
            shown=$SECONDS
        fi
    done
    [[ ! -t 1 ]] || printf '\r\e[K'
}

# time_left DONE ALL SECONDS: prints an estimate; prints nothing before the first part is done and 10 s have passed.
time_left() {
    (($1 > 0 && $3 >= 10)) || return 0
    local s=$(($3 * ($2 - $1) / $1))
    if ((s >= 90)); then printf 'about %d minutes left' $(((s + 30) / 60)); else printf 'about %d s left' "$s"; fi
}
