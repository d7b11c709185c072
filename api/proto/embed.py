"""embed.py OUTPUT PROTODIR PROTO...: the descriptors of these files and of all they import, as an array in C."""
import subprocess
import sys
import tempfile

output, protodir, *protos = sys.argv[1:]
with tempfile.NamedTemporaryFile() as f:
    subprocess.run(["protoc", f"--proto_path={protodir}", "--include_imports", f"--descriptor_set_out={f.name}", *protos], check=True)
    data = f.read()
with open(output, "w", encoding="ascii") as out:
    out.write("#include \"descriptors.h\"\nconst unsigned char proto_descriptors[] = {\n")
    for i in range(0, len(data), 32):
        out.write(",".join(str(b) for b in data[i:i + 32]) + ",\n")
    out.write(f"}};\nconst unsigned long proto_descriptors_len = {len(data)};\n")
