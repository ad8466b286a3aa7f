# Sourced by the scripts beside it.

# log_end LOG: the important part of a failed command's log: the first compiler errors, else its end.
log_end() {
    local errors
    # The command line that ninja repeats says nothing to a reader.
    errors=$(awk '/^FAILED:/ { on = 1 } on && !/ -o .* -c /' "$1" | head -n 40)
    if [[ -n $errors ]]; then echo "$errors"; else tail -n 40 "$1"; fi
}

# show_progress: shows how far ninja, whose output is read, has come, and about how long the rest takes: a line that
# changes on a terminal, else a line every 30 s, also while ninja writes nothing.
show_progress() {
    local line status parts=() text begun=$SECONDS shown=$SECONDS
    while true; do
        status=0
        IFS= read -r -t 10 line || status=$?
        # A status over 128 says that ninja has written nothing for a while: the time goes on.
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

# time_left DONE ALL SECONDS: an estimate in words, from the parts that are done; nothing before it can be one.
time_left() {
    (($1 > 0 && $3 >= 10)) || return 0
    local s=$(($3 * ($2 - $1) / $1))
    if ((s >= 90)); then printf 'about %d minutes left' $(((s + 30) / 60)); else printf 'about %d s left' "$s"; fi
}
