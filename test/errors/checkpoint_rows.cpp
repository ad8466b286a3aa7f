// Checkpoints: entries, files and ranks that do not fit.
#include <cstring>
#include <functional>

#include "errors/areas.h"
#include "errors/jobs.h"
#include "trainer/checkpoint/checkpoint_fixture.h"

namespace errors_test::checkpoints {
namespace {

using test::Folder;
using test::List;

struct Entry {
    const char* what;
    const char* names;
    tutti_status (*add)(tutti_checkpoint* list, float* data);
};

constexpr int64_t one[] = {1}, two[] = {2}, negative[] = {-1}, huge[] = {INT64_MAX, 3};

constexpr Entry entries[] = {
    {"an entry that was added before", "'a'",
     [](tutti_checkpoint* c, float* x) {
         tutti_checkpoint_add(c, "a", x, TUTTI_FLOAT32, 1, one);
         return tutti_checkpoint_add(c, "a", x, TUTTI_FLOAT32, 1, one);
     }},
    {"an entry of another shape on another device", "device_1/a",
     [](tutti_checkpoint* c, float* x) {
         return tutti_checkpoint_add(c, "device_1/a", x, TUTTI_FLOAT32, 1, two);
     }},
    {"an entry without a name", "checkpoint",
     [](tutti_checkpoint* c, float* x) {
         return tutti_checkpoint_add(c, "", x, TUTTI_FLOAT32, 1, one);
     }},
    {"an entry of the file's own name", "__metadata__",
     [](tutti_checkpoint* c, float* x) {
         return tutti_checkpoint_add(c, "__metadata__", x, TUTTI_FLOAT32, 1, one);
     }},
    {"an entry that is not UTF-8", "entry",
     [](tutti_checkpoint* c, float* x) {
         return tutti_checkpoint_add(c, "\xff", x, TUTTI_FLOAT32, 1, one);
     }},
    {"an entry with a control character", "entry",
     [](tutti_checkpoint* c, float* x) {
         return tutti_checkpoint_add(c, "a\nb", x, TUTTI_FLOAT32, 1, one);
     }},
    {"an entry of no dtype", "'b'",
     [](tutti_checkpoint* c, float* x) { return tutti_checkpoint_add(c, "b", x, 99, 1, one); }},
    {"an entry of a negative extent", "'b'",
     [](tutti_checkpoint* c, float* x) {
         return tutti_checkpoint_add(c, "b", x, TUTTI_FLOAT32, 1, negative);
     }},
    {"an entry without end", "'b'",
     [](tutti_checkpoint* c, float* x) {
         return tutti_checkpoint_add(c, "b", x, TUTTI_FLOAT32, 2, huge);
     }},
    {"an entry without its shape", "'b'",
     [](tutti_checkpoint* c, float* x) {
         return tutti_checkpoint_add(c, "b", x, TUTTI_FLOAT32, 1, nullptr);
     }},
    {"an entry without data", "'b'",
     [](tutti_checkpoint* c, float*) {
         return tutti_checkpoint_add(c, "b", nullptr, TUTTI_FLOAT32, 1, one);
     }},
    {"a shard without rows", "'b'",
     [](tutti_checkpoint* c, float* x) {
         return tutti_checkpoint_add_shard(c, "b", x, TUTTI_FLOAT32, 0, nullptr, 0, 1);
     }},
    {"a shard of rows that there are not", "'b'",
     [](tutti_checkpoint* c, float* x) {
         return tutti_checkpoint_add_shard(c, "b", x, TUTTI_FLOAT32, 1, two, 1, 2);
     }},
    {"a text under tutti's own key", "tutti.format",
     [](tutti_checkpoint* c, float*) { return tutti_checkpoint_set_text(c, "tutti.format", "1"); }},
    {"a text that is not UTF-8", "epoch",
     [](tutti_checkpoint* c, float*) { return tutti_checkpoint_set_text(c, "epoch", "\xff"); }},
};

/// A damage to a file, and a word of the error besides the file's name.
struct Damage {
    const char* what;
    void (*spoil)(std::string& contents);
};
constexpr Damage damages[] = {
    {"an empty file", [](std::string& c) { c.clear(); }},
    {"a file that is cut in its length", [](std::string& c) { c.resize(5); }},
    {"a file that is cut in its header", [](std::string& c) { c.resize(60); }},
    {"a file that is cut in its values", [](std::string& c) { c.pop_back(); }},
    {"a file with more behind it", [](std::string& c) { c += 'x'; }},
    {"a file with another header", [](std::string& c) { c[20] ^= 1; }},
    {"a file with another value", [](std::string& c) { c.back() ^= 1; }},
    {"a file of noise", [](std::string& c) { c.assign(4096, '\xff'); }},
    {"a file of another program",
     [](std::string& c) {
         const std::string json = R"({"weight":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})";
         c.assign(8, '\0');
         c[0] = static_cast<char>(json.size());
         c += json + "abcd";
     }},
    {"a file of a newer version",
     [](std::string& c) {
         const std::string json = R"({"__metadata__":{"tutti.format":"7"}})";
         c.assign(8, '\0');
         c[0] = static_cast<char>(json.size());
         c += json;
     }},
};

tutti_status load(tutti_checkpoint* list, const std::string& path,
                  const tutti_checkpoint_opts* opts = nullptr) {
    return tutti_checkpoint_load(list, nullptr, path.c_str(), opts);
}

void damage_files(Ledger& ledger, tutti_checkpoint* list) {
    const Folder folder;
    List::ok(tutti_checkpoint_save(list, nullptr, folder.file().c_str()));
    const std::string whole = test::contents(folder.file());
    for (const Damage& damage : damages) {
        std::string contents = whole;
        damage.spoil(contents);
        test::put(folder.file(), contents);
        ledger.take_trainer(damage.what, load(list, folder.file()), {.names = folder.file()});
    }
    ledger.take_trainer("a file that there is not", load(list, folder.file("none")),
                        {TUTTI_ERR_SYSTEM, folder.file("none")});
    ledger.take_trainer("a file in no folder",
                        tutti_checkpoint_save(list, nullptr, folder.file("no/folder").c_str()),
                        {TUTTI_ERR_SYSTEM, folder.file("no/folder")});
    ledger.take_trainer("a folder as a file", load(list, folder.path()), {.names = folder.path()});
}

void load_other_models(Ledger& ledger, tutti_checkpoint* list) {
    const Folder folder;
    List::ok(tutti_checkpoint_save(list, nullptr, folder.file().c_str()));
    std::vector<float> values(6), more(2);
    List other;
    other.add("weight", values, {2, 3}).add("bias", more, {2});
    ledger.take_trainer("a file that lacks an entry", load(other, folder.file()),
                        {.names = "'bias'"});
    List less;
    less.add("weight", values, {2, 3});
    ledger.take_trainer("a file with an entry more", load(less, folder.file()),
                        {.names = folder.file()});
    List turned;
    turned.add("weight", values, {3, 2});
    tutti_checkpoint_opts opts = TUTTI_CHECKPOINT_OPTS_INIT;
    opts.allow_extra = 1;
    ledger.take_trainer("an entry of another shape", load(turned, folder.file(), &opts),
                        {.names = "'weight'"});
    opts.struct_size = 0;
    ledger.take_trainer("options of no size", load(turned, folder.file(), &opts),
                        {.names = "struct_size"});
    List::ok(tutti_checkpoint_set_copy(
        turned, [](void*, void*, const void*, size_t, int) { return 5; }, nullptr));
    ledger.take_trainer("a copy that fails",
                        tutti_checkpoint_save(turned, nullptr, folder.file("copy").c_str()),
                        {TUTTI_ERR_SYSTEM, "checkpoint"});
}

void save_on_ranks(Ledger& ledger) {
    const Folder folder;
    run_job(ledger, "checkpoints of ranks", {}, [&](tutti_comm* comm, int rank) {
        std::vector<float> values(4);
        const std::string on = " on rank " + std::to_string(rank);
        List different;
        different.add(rank == 0 ? "a" : "b", values, {4});
        ledger.take_trainer("different entries" + on,
                            tutti_checkpoint_save(different, comm, folder.file().c_str()),
                            {.names = "rank 1", .culprit = 1});
        List gap;
        gap.add_rows("table", values, {8, 1}, rank == 0 ? 0 : 5, 3);
        ledger.take_trainer("rows that no rank has" + on,
                            tutti_checkpoint_save(gap, comm, folder.file().c_str()),
                            {.names = "'table'", .culprit = 1});
        List both;
        both.add_rows("table", values, {4, 1}, 0, 3);
        ledger.take_trainer("rows that two ranks have" + on,
                            tutti_checkpoint_save(both, comm, folder.file().c_str()),
                            {.names = "'table'", .culprit = 1});
        List right;
        right.add("a", values, {4});
        ledger.take_trainer("a file in no folder" + on,
                            tutti_checkpoint_save(right, comm, folder.file("no/folder").c_str()),
                            {TUTTI_ERR_SYSTEM, "no/folder"});
        ledger.take_trainer(
            "a file that is not there" + on,
            tutti_checkpoint_load(right, comm, folder.file("none").c_str(), nullptr),
            {TUTTI_ERR_SYSTEM, folder.file("none")});
    });
}

}  // namespace

void provoke_checkpoints(Ledger& ledger) {
    List odd;
    float data[8] = {};
    for (const Entry& entry : entries)
        ledger.take_trainer(entry.what, entry.add(odd, data), {.names = entry.names});
    test::Model model;
    List list;
    model.add_to(list);
    damage_files(ledger, list);
    load_other_models(ledger, list);
    save_on_ranks(ledger);
}

}  // namespace errors_test::checkpoints
