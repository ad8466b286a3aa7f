"""Do the measures of tools/house/measures.py see what test/house/house_test.py looks for?"""
import os
import pathlib
import sys
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(os.environ["TUTTI_SOURCE"]) / "tools" / "house"))
import measures  # noqa: E402


class Code(unittest.TestCase):
    def test_member_functions_are_counted_wherever_their_bodies_are(self):
        text = """
            // class Commented { void f(); };
            class A final : public B<int> {
            public:
                A();
                explicit A(int x) : x_(x) { f(); }
                ~A() override;
                A& operator=(const A&) = delete;
                void overridden(int) override;
                friend void other(A&);
                [[nodiscard]] Result<std::vector<int>> declared(std::function<void(int)> f, int b = g()) const;
                int inside() const { return x_ ? 1 : 2; }
                static constexpr int also(int a) { if (a) { return 1; } return 2; }
                template <class T> void made(T&& t);
                struct Inner { int member() { return 0; } int x{0}; };
                virtual void pure() = 0;
            private:
                std::function<void(int)> hook_;
                void (*pointer_)(int) = nullptr;
                int x_{0}, y_ = f(1);
                std::atomic<int> z_{no_fd()};
            };
            enum class E { a, b };
        """
        self.assertEqual(dict(measures.classes(text)),
                         {"A": ["declared", "inside", "also", "made", "pure"], "Inner": ["member"]})
        self.assertEqual(measures.virtual_functions("struct I { virtual ~I(); virtual int f() = 0; };", "I"), 1)

    def test_a_walk_stops_where_there_is_something_to_read(self):
        code = "int f(int a) {\n    return a;\n}\nint A::g(int a) {\n    a += 1;\n    return a;\n}\n"
        self.assertTrue(measures.is_stop("A::g(int)", code, 4))
        for name, line in (("f(int)", 1), ("A<B>::A(int)", 4), ("A::~A()", 4), ("A::operator=(A&&)", 4),
                           ("A::g(int)::{lambda()#1}::operator()() const", 4), ("made_by_the_compiler()", 8)):
            self.assertFalse(measures.is_stop(name, code, line), name)


class Prose(unittest.TestCase):
    def test_a_headless_clause_is_told_from_a_question_and_a_sentence(self):
        for text in ("What a call leaves goes out later.", "Who is leaving may be called.", "Nobody waits for it.",
                     "Where it is not there.", "Of a mismatch each rank hears once.", "whoever looks for it", "those after a loss"):
            self.assertTrue(measures.is_headless(text), text)
        for text in ("What does the peer lack?", "Where the kernel lacks it, the ring falls back.", "The peer's own.",
                     "Whatever the peer sends is checked.", "However long it takes.", "nobody: no rank remains", "of the wire",
                     "what does it lack?"):
            self.assertFalse(measures.is_headless(text), text)

    def test_a_later_headless_sentence_is_seen(self):
        self.assertEqual(measures.headless_sentence("The lane sends. What is left goes out later."), "What is left goes out later.")
        for text in ("The lane sends. The rest waits.", '"MESSAGE. What to do: ADVICE"', "Ask. What does the peer lack?"):
            self.assertIsNone(measures.headless_sentence(text), text)

    def test_blocks_are_seen_whole(self):
        self.assertEqual(list(measures.comment_blocks("int a;\n/// One\n/// two.\nint b;  // not a block\n/* Three\n * four. */\n")),
                         [(2, "One two."), (5, "Three four.")])

    def test_comments_behind_code_are_seen_whole(self):
        text = ('int a;  // one\n        // two\n// no\nchar b[] = "// no";  /* three\n   four */\nint c; // five\n'
                '    // no\n    // no\n')
        self.assertEqual(measures.trailing_comments(text), [(1, "one two"), (4, "three four"), (6, "five")])

    def test_comments_of_scripts_are_seen_whole(self):
        text = '#!/bin/sh\n# one\n# two\nrun "$#" a#b  # three\n  # four\n'
        self.assertEqual(measures.hash_blocks(text), [(2, "one two"), (4, "three"), (5, "four")])

    def test_an_error_without_advice_is_seen(self):
        text = """
            return fail(Code::invalid, "no; none").advice("give one; it's 60'000");  // fail(Code::auth, "a");
            return fail(Code::timeout, "it took {} ms", 60'000);
            return fail_rank(Code::mismatch, peer,
                             "rank {}; differs", peer);
            return a ? invalid("b") : fail(TUTTI_ERR_UNSUPPORTED, "c").advice("d");
            ErrorResult invalid(Text t, Args&&... a) { return fail(TUTTI_ERR_INVALID, t, std::forward<Args>(a)...); }
            if (error.code == Code::invalid) ++is_invalid();
            return trainer::fail_device(given ? TUTTI_ERR_INVALID : TUTTI_ERR_SYSTEM, device, "e");
        """
        self.assertEqual([line for line, _ in measures.errors_without_advice(text)], [4, 6, 9])

    def test_a_warning_without_advice_is_seen(self):
        text = """
            log::warn(fail(Code::auth, "no; {}", b).advice("give it").on(rank)); log::error(wrap(error, "while"));
            log::warn("no {}", b); log::info("it is {}", b);
            return log::error(fail_rank(Code::auth, a, "no"));
            log::warn(
                "no");
        """
        self.assertEqual([line for line, _ in measures.warnings_without_advice(text)], [3, 4, 5])

    def test_advice_in_a_literal_is_seen(self):
        for text, python in (('f("no. What " "to do: go");', False), ('raise A(f"{no}. What to "\n  "do: go")', True)):
            self.assertTrue(measures.has_typed_advice(text, python), text)
        for text, python in (('// What to do: go\nf("no");', False), ('"""What\n\nto do: go"""', True)):
            self.assertFalse(measures.has_typed_advice(text, python), text)

    def test_texts_are_seen_where_they_begin(self):
        text = """
            return fail(Code::invalid, "{}: what " "is {}", name, "no").advice("{}", "give a name");
            return wrap(on_rank(rank, std::move(error)), fmt::format("who {}", rank));
            log::info("those"); return wrap(error, doing); log::write(level, "of"); // fail(Code::auth, "nobody")
            throw std::runtime_error(command_line::with_advice(a, "those"));
        """
        self.assertEqual(list(measures.error_texts(text)),
                         [(2, "{}: what is {}"), (2, "{}"), (3, "who {}"), (4, "those"), (5, "those"), (5, "those")])
        python = ('raise A(f"whose {b}")\nraise B("how" + c)\nraise C(f"{d} of")\nraise D\nraise E(e)\n'
                  'raise F(with_advice("who " + f, g))\nsys.exit("what")\nparser.error(f"of {h}")\n'
                  'parser.add_argument("what", help="nobody")\n')
        self.assertEqual(sorted(set(measures.python_error_texts(python))),
                         [(1, "whose "), (2, "how"), (6, "who "), (7, "what"), (8, "of "), (9, "nobody")])
        program = 'app.add_option("what", o.what, "how many\\nranks.\\n\\n" R"(Who\n\nis it)")->check(A("of two"));x("what is");'
        self.assertEqual(list(measures.help_texts(program)),
                         [(1, "how many ranks."), (1, "is it"), (3, "of two")])
        for headless in ("who {}", "of a mismatch each rank hears once", "those"):
            self.assertTrue(measures.is_headless_text(headless), headless)
        for sentence in ("offset {} is odd", "rank {} is out of range", "wholes only", ""):
            self.assertFalse(measures.is_headless_text(sentence), sentence)


if __name__ == "__main__":
    unittest.main()
