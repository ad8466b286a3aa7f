"""Writes a file's bytes as C++: embed.py IMAGE SOURCE."""
import sys

with open(sys.argv[1], "rb") as file:
    image = file.read()
lines = [", ".join(str(byte) for byte in image[at:at + 24]) for at in range(0, len(image), 24)]
with open(sys.argv[2], "w", encoding="utf-8") as file:
    # A zero at the end, for images that are text; aligned, for images that are not.
    file.write("#include \"reduce/fold.h\"\n\nnamespace tutti::fold {\nnamespace {\n\n"
               "alignas(16) const unsigned char image[] = {\n" + ",\n".join(lines) + ",\n0};\n\n}  // namespace\n\n"
               "std::string_view device_image() {\n"
               "    return {reinterpret_cast<const char*>(image), sizeof image - 1};\n}\n\n}  // namespace tutti::fold\n")
