import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.utils.Utils;
import org.apache.kafka.connect.json.JsonConverter;

/**
 * Connect's own words for values that come in: a count, then tagged values, until the input ends. For each value go out the bytes that the
 * JsonConverter makes of it, the bytes that it makes of what it has read back from those, and murmur2 of the first.
 */
public class WireFormats {
    public static void main(String[] arguments) throws IOException {
        DataInputStream in = new DataInputStream(new BufferedInputStream(System.in));
        DataOutputStream out = new DataOutputStream(new BufferedOutputStream(System.out));
        JsonConverter converter = new JsonConverter();
        converter.configure(Map.of("schemas.enable", "false"), true);
        while (true) {
            int left;
            try {
                left = in.readInt();
            } catch (EOFException end) {
                return;
            }
            for (; left > 0; left--) answer(converter, read(in), out);
            out.flush();
        }
    }

    private static void answer(JsonConverter converter, Object value, DataOutputStream out) throws IOException {
        byte[] once = converter.fromConnectData("t", null, value);
        byte[] again = once == null ? null
            : converter.fromConnectData("t", null, converter.toConnectData("t", once).value());
        write(out, once);
        write(out, again);
        out.writeInt(once == null ? 0 : Utils.murmur2(once));
    }

    private static Object read(DataInputStream in) throws IOException {
        char tag = (char) in.readByte();
        switch (tag) {
            case 'n': return null;
            case 't': return true;
            case 'f': return false;
            case 'i': return in.readLong();
            case 'd': return in.readDouble();
            case 'b': return in.readNBytes(in.readInt());
            case 's': {
                char[] units = new char[in.readInt()];
                for (int i = 0; i < units.length; i++) units[i] = in.readChar();
                return new String(units);
            }
            case 'l': {
                List<Object> list = new ArrayList<>();
                for (int left = in.readInt(); left > 0; left--) list.add(read(in));
                return list;
            }
            case 'm': {
                Map<Object, Object> map = new LinkedHashMap<>();
                for (int left = in.readInt(); left > 0; left--) {
                    Object name = read(in);
                    map.put(name, read(in));
                }
                return map;
            }
            default: throw new IOException("unknown tag " + tag);
        }
    }

    private static void write(DataOutputStream out, byte[] bytes) throws IOException {
        out.writeInt(bytes == null ? -1 : bytes.length);
        if (bytes != null) out.write(bytes);
    }
}
